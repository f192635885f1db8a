"""Predictions of fine-tuned models for a request: typed predictions, logits, and scores by label."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from fastapi import Request, Response

from bertkit.inference import InferenceReport, Runner
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


@dataclass(frozen=True)
class Prediction:
    """Predictions or logits of the model's task; see `text_jobs.Verb`."""

    served: ServedModel
    on_long: OnLong | None = None  # None: as in training
    as_logits: bool = False

    @property
    def runner(self) -> Runner:
        return self.served.model._runner

    @property
    def most_tokens(self) -> int | None:
        """See `Verb.most_tokens`."""
        layout = self.served.model.trained.layout
        return None if (self.on_long or layout.on_long) == "window" else layout.max_length or self.served.max_length

    def compute(self, items: Sequence[Any], ticket: Ticket) -> list[Any]:
        """Predictions of the items; their logits, (C,) float32, if ``as_logits``."""
        decode = _text_logits if self.as_logits else None
        return predict(self.served, items, ticket, on_long=self.on_long, decode=decode)

    async def answer(
        self,
        service: Service,
        request: Request,
        inputs: Sequence[str],
        items: Sequence[Any],
        finish: Callable[[list[Any], Ticket], Any],
    ) -> Response:
        """See `Service.compute`."""
        return await service.compute(request, inputs, self, items, finish, "predict")


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


def entities_as_json(service: Service, predictions: Sequence[Any], ticket: Ticket) -> list[list[dict[str, Any]]]:
    """The entities of each prediction as JSON objects.

    Raises:
        InvalidRequest, Overloaded: an answer that is too large; see `Service.reserve`.
    """
    rows = []
    for prediction in predictions:
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


def first_logits(rows: Sequence[np.ndarray], *, raw: bool = False) -> np.ndarray:
    """(N,) float32: the first logit of each row, or without ``raw`` its sigmoid."""
    logits = np.array(rows, np.float32)[:, 0]
    return logits if raw else torch.from_numpy(logits).sigmoid().numpy()


def labels_as_json(verb: Prediction, results: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """Labels of each text or pair with probabilities, or with the logits of the verb, best first."""
    names = verb.served.task.label_names or ()
    rows = [dict(zip(names, each.tolist(), strict=True)) if verb.as_logits else _by_label(each) for each in results]
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
