"""Hard negatives: texts near a query that are not among its positives.

Takes: rows of queries and positives, a sentence encoder, optionally further texts and a cross-encoder.
Gives: the rows with negatives, and counts of the candidates that were left out.
May import: errors, tokenizer, tasks, inference, neighbors, model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.tasks import TextSet
from bertkit.tasks.field_types import Count, Range, check_field_types
from bertkit.tokenizer.tokenizer import refuse_one_text

if TYPE_CHECKING:
    from bertkit.model import Model

_QUERIES_AT_ONCE = 1_024
_Rank = Annotated[int, Range("an integer of at least 0", lambda value: value >= 0)]


@dataclass(frozen=True)
class MiningOptions:
    """Which of the nearest texts become negatives.

    Parameters
    ----------
    num_negatives
        Maximum number of negatives per query, nearest first.
    first_rank
        Skip this number of nearest candidates, which are the most likely unlabeled positives.
    last_rank
        Consider candidates up to this rank, counted after those that the margins and limits reject; by default
        num_negatives more than first_rank, 10 times that number with a margin or a largest score, and the most
        positives of a query.
    absolute_margin
        A negative's score is at least this much below that of the query's farthest positive.
    relative_margin
        A negative's score is at least this share below it, for example 0.05 (de Souza et al. 2024, "NV-Retriever").
    max_score
        A negative's score is at most this.
    min_score
        A negative's score is at least this.
    """

    num_negatives: Count = 3
    first_rank: _Rank = 0
    last_rank: int | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    max_score: float | None = None
    min_score: float | None = None

    def __post_init__(self) -> None:
        check_field_types(self)
        if self.last_rank is not None and self.last_rank < self.first_rank + self.num_negatives:
            raise UsageError(
                f"last_rank={self.last_rank}: expected at least first_rank + num_negatives, "
                f"{self.first_rank + self.num_negatives}"
            )

    def candidates(self, most_positives: int, *, is_scored_again: bool) -> int:
        """Number of candidates to consider for a query, in addition to its positives."""
        if self.last_rank is not None:
            return self.last_rank
        limits = self.absolute_margin, self.relative_margin, self.max_score
        is_limited = limits != (None, None, None) or (is_scored_again and self.min_score is not None)
        return self.first_rank + self.num_negatives * (10 if is_limited else 1) + most_positives


@dataclass
class MiningReport:
    """Counts of mined negatives and rejected candidates."""

    num_queries: int = 0
    num_negatives: int = 0
    num_without: int = 0  # queries for which no candidate was left
    left_out: dict[str, int] = field(default_factory=dict)  # candidates by the option that left them out


def mine_negatives(
    model: Model,
    rows: Sequence[TextSet],
    options: MiningOptions,
    *,
    corpus: Sequence[str] = (),
    cross_encoder: Model | None = None,
    report: MiningReport | None = None,
    kept: Path | None = None,
) -> Iterator[TextSet]:
    """Mine hard negatives: each query once, in the order of the rows, with all its positives.

    Scores are exact cosines of every query with every text, computed for about a thousand queries at a time. A query
    that is among the texts is not a candidate for itself.

    Args:
        rows: queries with positives; negatives in them are left out.
        corpus: texts to search in addition to all positives.
        cross_encoder: scores the candidates and positives again before the margins and limits apply.
        report: filled with counts.
        kept: cache folder of vectors and scores of these models, so that a stopped run can be resumed; None: no cache.

    Yields:
        One row per query, even if it has no negatives.

    Raises:
        DataError: no rows, a query without positives, or a pair with a score, which may be 0.
        UsageError: fewer than two texts to search, a str instead of a corpus, or a cross-encoder with several labels.
    """
    from tqdm import tqdm

    from bertkit.model import check_model
    from bertkit.neighbors import Corpus

    check_model(model)
    refuse_one_text(corpus)
    if cross_encoder is not None:
        check_model(cross_encoder, "the cross-encoder")
        cross_encoder.rank("", [])  # which refuses several labels, before long work
    report = MiningReport() if report is None else report
    positives: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.score is not None:
            raise row.error("has a score, but mining takes pairs without: keep the positive ones, and drop the column")
        positives.setdefault(row.query, {}).update(dict.fromkeys(row.with_positive().positives))
    if not positives:
        raise DataError("there are no rows to mine negatives for")
    texts = list(dict.fromkeys([*corpus, *(text for some in positives.values() for text in some)]))
    if len(texts) < 2:
        raise UsageError("there is only one text to search: pass others as corpus")
    numbers = {text: number for number, text in enumerate(texts)}
    query_prompt, document_prompt = model.sentence_settings.retrieval_prompts
    vectors = _vectors(model, texts, document_prompt, kept and kept / "texts")
    most_positives = max(map(len, positives.values()))
    num_candidates = options.candidates(most_positives, is_scored_again=cross_encoder is not None)
    depth = num_candidates + most_positives
    queries, searched = list(positives), Corpus(vectors, model.device)
    asked = _vectors(model, queries, query_prompt, kept and kept / "queries")
    for start in tqdm(range(0, len(queries), _QUERIES_AT_ONCE), desc="mining", delay=2, leave=False, disable=None):
        part = queries[start : start + _QUERIES_AT_ONCE]
        scores, ids = searched.top_k(asked[start : start + len(part)], depth + 1)
        owned = [[numbers[text] for text in positives[query]] for query in part]
        of_owned = [vectors[own] @ asked[start + number] for number, own in enumerate(owned)]
        if cross_encoder is not None:
            compared = [[*near, *own] for near, own in zip(ids.tolist(), owned, strict=True)]
            pairs = [(query, texts[index]) for query, some in zip(part, compared, strict=True) for index in some]
            again = _pair_scores(cross_encoder, pairs, kept and kept / f"scores-{start}")
            ends = np.cumsum([0, *map(len, compared)]).tolist()
            of_queries = [again[first:end] for first, end in pairwise(ends)]
            scores, of_owned = zip(*(np.split(row, [ids.shape[1]]) for row in of_queries), strict=True)
        for query, own, of_positives, of_query, near in zip(part, owned, of_owned, scores, ids, strict=True):
            others = np.flatnonzero(near != numbers.get(query, -1))[:depth]  # not the query itself
            near, of_query = near[others], np.array(of_query, np.float32)[others]
            of_query[np.isin(near, own)] = -np.inf
            _leave_out(of_query, float(of_positives.min()), options, report)
            order = np.argsort(-of_query, kind="stable")[:num_candidates][options.first_rank :]
            chosen = [index for index in order[: options.num_negatives] if np.isfinite(of_query[index])]
            report.num_queries += 1
            report.num_negatives += len(chosen)
            report.num_without += not chosen
            yield TextSet(query, tuple(positives[query]), tuple(texts[near[index]] for index in chosen))


def _vectors(model: Model, texts: Sequence[str], prompt: str, kept: Path | None) -> np.ndarray:
    """(N, E) float32 of length 1; with the cache folder ``kept`` only missing ones are computed."""
    if kept is None:
        return model.embed(texts, normalize=True, prompt=prompt)
    from bertkit.inference import InferenceReport
    from bertkit.inference.vector_cache import kept_vectors

    report = InferenceReport()

    def compute(missing: list[str]) -> Iterator[np.ndarray]:
        for _, vectors in model.embed_stream(missing, report=report, normalize=True, prompt=prompt):
            yield vectors

    kept /= hashlib.sha256(prompt.encode()).hexdigest()[:16]
    results = kept_vectors(kept, texts, compute)
    report.warn_of_cuts("shorten them to compare them in full")
    return results


def _pair_scores(cross_encoder: Model, pairs: Sequence[tuple[str, str]], kept: Path | None) -> np.ndarray:
    """(N,) float32, with the same cache."""
    if kept is None:
        return cross_encoder.score_pairs(*map(list, zip(*pairs, strict=True)))
    from bertkit.inference.vector_cache import kept_scores

    return kept_scores(kept, pairs, cross_encoder.score_pairs)


def _leave_out(scores: np.ndarray, positive: float, options: MiningOptions, report: MiningReport) -> None:
    """Set the scores of candidates that the options reject to minus infinity."""
    limits = (
        ("absolute_margin", options.absolute_margin, lambda margin: scores + np.float32(margin) > positive),
        ("relative_margin", options.relative_margin, lambda margin: scores > positive - abs(positive) * margin),
        ("max_score", options.max_score, lambda limit: scores > limit),
        ("min_score", options.min_score, lambda limit: scores < limit),
    )
    for name, value, excess in limits:
        if value is not None:
            out = excess(value) & np.isfinite(scores)
            scores[out] = -np.inf
            report.left_out[name] = report.left_out.get(name, 0) + int(out.sum())


ROW_FORMATS = ("list", "triplet", "tuple", "pair")
"""A mined row with its lists; a triplet of each positive and negative; a row for each positive with all negatives,
if the query has the requested number; pairs with the scores 1 and 0."""


def formatted(row: TextSet, row_format: str, num_negatives: int) -> Iterator[dict[str, object]]:
    """The JSON objects of a mined row in one of ROW_FORMATS, as `bertkit finetune similarity` reads them.

    Raises:
        UsageError: an unknown format.
    """
    match row_format:
        case "list":
            yield {"query": row.query, "positives": list(row.positives), "negatives": list(row.negatives)}
        case "triplet":
            for positive in row.positives:
                for negative in row.negatives:
                    yield {"anchor": row.query, "positive": positive, "negative": negative}
        case "tuple":
            if len(row.negatives) == num_negatives:
                numbered = {f"negative_{number}": text for number, text in enumerate(row.negatives, start=1)}
                for positive in row.positives:
                    yield {"anchor": row.query, "positive": positive, **numbered}
        case "pair":
            for text, score in [*((text, 1) for text in row.positives), *((text, 0) for text in row.negatives)]:
                yield {"sentence1": row.query, "sentence2": text, "score": score}
        case _:
            raise UsageError(f"format {row_format!r}: expected one of {', '.join(ROW_FORMATS)}")
