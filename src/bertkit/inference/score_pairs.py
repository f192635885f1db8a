"""Score pairs of texts with a cross-encoder, and rank texts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from tqdm import tqdm

from bertkit.batch import Batch
from bertkit.errors import UsageError, checked_count
from bertkit.heads import OUTPUT_ACTIVATIONS
from bertkit.inference.embed import EmbedReport
from bertkit.inference.runner import Runner, chunks
from bertkit.inference.truncation import warn_of_truncation, warn_of_unknown
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.tokenizer import refuse_table

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
    if on_long == "window":
        raise UsageError("on_long='window' gives several scores for a pair: choose 'truncate' or shorten the texts")
    queries, texts = paired(queries, texts)
    head: Any = runner.network.heads[HEAD]
    num_labels, first_only = head.classifier.out_features, runner.network.reads_first_tokens(HEAD)
    activation = activation or ("Sigmoid" if num_labels == 1 else "Identity")
    scores, counts = [np.empty((0, num_labels), np.float32)], EmbedReport()
    pairs = zip(queries, texts, strict=True)
    with tqdm(total=len(texts), desc="scoring", unit=" pairs", delay=2, leave=False, disable=None) as progress:
        for chunk in chunks(pairs, num_characters=_num_characters):
            encodings = runner.tokenizer.encode_batch(
                [query for query, _ in chunk],
                [text for _, text in chunk],
                max_length=min(runner.tokenizer.model_max_length or runner.max_positions, runner.max_positions),
                on_long=on_long,
                first_index=counts.num_texts,
                with_offsets=False,
            )
            counts.add(encodings, len(chunk))

            def forward(batch: Batch, indices: np.ndarray) -> Tensor:
                encoded = runner.encoder(batch, first_only=first_only)
                logits = runner.network.head_logits(HEAD, encoded, batch).float()
                return OUTPUT_ACTIVATIONS[activation](logits).cpu()

            scores.append(runner.run(encodings, forward).numpy())
            progress.update(len(chunk))
    remedy = "shorten them to encode them in full"
    warn_of_truncation(len(texts), counts.num_texts_cut, counts.num_tokens_cut, remedy, stacklevel=4)
    warn_of_unknown(counts.num_unknown, counts.num_tokens, stacklevel=4)
    results = np.concatenate(scores)
    return results[:, 0] if num_labels == 1 else results


def texts_of(texts: str | Iterable[str]) -> list[str]:
    """A list of texts; one str is one text.

    Raises:
        UsageError: a table.
    """
    refuse_table(texts)
    return [texts] if isinstance(texts, str) else list(texts)


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
    for text in pair:
        if not isinstance(text, str):
            raise UsageError(f"a text is {type(text).__name__} ({text!r:.40}): expected str")
    return len(pair[0]) + len(pair[1])
