"""Predictions of fine-tuned models for a request: typed predictions, logits, and scores by label."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from bertkit.inference import InferenceReport
from bertkit.inference.fill_mask import FilledMask
from bertkit.inference.predict import Decode
from bertkit.serving.refusals import ComputationFailed
from bertkit.serving.served_models import ServedModel
from bertkit.serving.service import Service
from bertkit.serving.ticket import Ticket
from bertkit.tasks.texts import mean_over_windows
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import OnLong

_BYTES_PER_ENTITY = 100
"""About those of its JSON."""


def predict(
    served: ServedModel,
    items: Sequence[Any],
    ticket: Ticket,
    *,
    on_long: OnLong | None = None,
    decode: Decode | None = None,
) -> list[Any]:
    """Predictions of the model's task, or with ``decode`` its results from the logits.

    Args:
        items: inputs of `TextTask.example`.
        on_long: None: as in training.

    Raises:
        BertkitError: an item that is invalid for the task, or too long under "error".
        ComputationFailed: a logit is not finite.
    """
    decoded, report = decode or served.task.decode, InferenceReport()

    def decode_finite(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[Any]:
        if not np.isfinite(logits).all():
            raise ComputationFailed("Backend error: a score is not finite")
        return decoded(examples, encodings, logits)

    parts = served.model.predict_stream(items, report=report, decode=decode_finite, on_long=on_long, progress=False)
    predictions = [prediction for _, part in parts for prediction in part]
    ticket.count(report.num_texts_cut, report)
    return predictions


def entities(
    service: Service, served: ServedModel, texts: Sequence[str], ticket: Ticket, *, on_long: OnLong | None = None
) -> list[list[dict[str, Any]]]:
    """The entities of each text as JSON objects.

    Raises:
        BertkitError: as `predict`.
        InvalidRequest, Overloaded: an answer that is too large; see `Service.reserve`.
    """
    rows = []
    for prediction in predict(served, texts, ticket, on_long=on_long):
        service.reserve(ticket, len(prediction.entities) * _BYTES_PER_ENTITY)
        rows.append(list(map(as_json, prediction.entities)))
    return rows


def fill_mask(
    service: Service,
    served: ServedModel,
    text: str,
    ticket: Ticket,
    *,
    top_k: int,
    on_long: OnLong,
    bytes_per_candidate: int = 80,
) -> list[FilledMask]:
    """As `Model.fill_mask`.

    Args:
        bytes_per_candidate: about those of its JSON.

    Raises:
        BertkitError: as `Model.fill_mask`.
        InvalidRequest, Overloaded: an answer that is too large; see `Service.reserve`.
        ComputationFailed: a probability is not finite.
    """
    num_masks = text.count(served.tokenizer.vocabulary.special.mask)
    num_candidates = num_masks * min(top_k, len(served.tokenizer.vocabulary))
    service.reserve(ticket, num_candidates * bytes_per_candidate)
    filled = served.model.fill_mask(text, top_k=top_k, on_long=on_long)
    if not all(math.isfinite(each.candidates[0].score) for each in filled):
        raise ComputationFailed("Backend error: a probability is not finite")
    return filled


def logits_of(served: ServedModel, items: Sequence[Any], ticket: Ticket, on_long: OnLong | None = None) -> np.ndarray:
    """(N, C) float32: logits of a classifier or re-ranker for each text or pair."""
    return np.array(predict(served, items, ticket, on_long=on_long, decode=_text_logits), np.float32)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), float32, without overflow."""
    return torch.from_numpy(logits).sigmoid().numpy()


def label_scores(
    served: ServedModel, items: Sequence[Any], ticket: Ticket, *, raw: bool = False, on_long: OnLong | None = None
) -> list[list[dict[str, Any]]]:
    """Labels of each text or pair with probabilities, or logits if ``raw``, best first."""
    names = served.task.label_names or ()
    if raw:
        rows = [dict(zip(names, row, strict=True)) for row in logits_of(served, items, ticket, on_long).tolist()]
    else:
        rows = [_by_label(prediction) for prediction in predict(served, items, ticket, on_long=on_long)]
    return [
        [{"score": score, "label": label} for label, score in sorted(row.items(), key=lambda each: -each[1])]
        for row in rows
    ]


def as_json(prediction: Any) -> dict[str, Any]:
    """A typed prediction as a JSON object."""
    return asdict(prediction)


def _by_label(prediction: Any) -> dict[str, float]:
    """Probabilities by label; for ordinal tasks the level and its number."""
    if hasattr(prediction, "probabilities"):
        return prediction.probabilities
    return {prediction.label: prediction.score}


def _text_logits(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[np.ndarray]:
    return list(mean_over_windows(encodings, logits))
