"""Score pairs of texts with a cross-encoder, and rank texts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import UsageError, checked_count
from bertkit.heads.projection import activated
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner, encoded_chunks, refuse_windows, text_length
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.tokenizer import as_items

HEAD = "sequence_classification"


@dataclass(frozen=True)
class RankedText:
    """A text with its score."""

    index: int  # index in the given texts
    score: float
    text: str


def score_pairs(
    runner: Runner,
    activation: str | None,
    queries: str | Sequence[str],
    texts: str | Sequence[str],
    *,
    on_long: OnLong = "truncate",
) -> np.ndarray:
    """Scores (N,) float32, or (N, num_labels) for several labels; see `Model.score_pairs`.

    Args:
        activation: activation of the logits, a name from OUTPUT_ACTIVATIONS; None: sigmoid for one label, else no
            activation.

    Raises:
        OverLengthError: a pair is too long under ``on_long="error"``.
        UsageError: different numbers of queries and texts, or ``on_long="window"``.
    """
    refuse_windows(on_long, "scores for a pair")
    queries, texts = paired(queries, texts)
    head: Any = runner.network.heads[HEAD]
    num_labels, first_only = head.classifier.out_features, runner.network.reads_first_tokens(HEAD)
    activation = activation or ("Sigmoid" if num_labels == 1 else "Identity")
    longest = min(runner.tokenizer.model_max_length or runner.max_positions, runner.max_positions)
    scores, report = [np.empty((0, num_labels), np.float32)], InferenceReport()

    def encode(pairs: list[tuple[str, str]], first: int) -> Encodings:
        return runner.tokenizer.encode_batch(
            *map(list, zip(*pairs, strict=True)), max_length=longest, on_long=on_long, first_index=first,
            with_offsets=False,
        )  # fmt: skip

    def forward(batch: Batch, indices: np.ndarray) -> Any:
        encoded = runner.encoder(batch, first_only=first_only)
        logits: Any = runner.network.head_logits(HEAD, encoded, batch)
        return logits if batch.is_in_arrays else logits.float().cpu()

    pairs = list(zip(queries, texts, strict=True))
    coming = encoded_chunks(pairs, encode, report, num_characters=_num_characters, doing="scoring", unit="pairs")
    for chunk, encodings, bar in coming:
        scores.append(activated(np.asarray(runner.run(encodings, forward)), activation))
        bar.update(len(chunk))
    report.warn("shorten them to encode them in full")
    results = np.concatenate(scores)
    return results[:, 0] if num_labels == 1 else results


def texts_of(texts: str | Iterable[str]) -> list[str]:
    """A list of texts; one str is one text.

    Raises:
        UsageError: a table.
    """
    return list(as_items(texts))


def paired(queries: str | Sequence[str], texts: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """A query for each text.

    Raises:
        UsageError: different numbers of queries and texts, or a table.
    """
    texts = texts_of(texts)
    queries = [queries] * len(texts) if isinstance(queries, str) else texts_of(queries)
    if len(queries) != len(texts):
        raise UsageError(f"{len(queries)} queries and {len(texts)} texts: expected one query, or one for each text")
    return queries, texts


def rank(scores: np.ndarray, texts: Sequence[str], *, top_k: int | None = None) -> list[RankedText]:
    """The texts by their (N,) scores, best first; see `Model.rank`.

    Raises:
        UsageError: scores of several labels, or ``top_k`` below 1.
    """
    top_k = None if top_k is None else checked_count("top_k", top_k)
    if scores.ndim == 2:
        raise UsageError(f"rank needs one score for each text, but this model has {scores.shape[1]} labels")
    order = np.argsort(-scores, kind="stable")[:top_k].tolist()
    return [RankedText(index, float(scores[index]), texts[index]) for index in order]


def _num_characters(pair: tuple[str, str]) -> int:
    return sum(map(text_length, pair))
