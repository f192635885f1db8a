"""Retrieval evaluation: rankings of a collection, and the scores of trec_eval.

Shape letters: Q queries. A ranking has the documents of a query, best first.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice

import numpy as np

from bertkit.errors import DataError
from bertkit.evidence.collections import Collection
from bertkit.evidence.intervals import Measured, measured_mean
from bertkit.inference.text_encoder import TextEncoder
from bertkit.model import Model, check_model
from bertkit.neighbors import Corpus

CUTOFF = 10
RECALLS = (1, 10, 100)
DEPTH = 1_000
"""Number of documents in a ranking."""

Ranking = dict[str, float]
"""The score of each retrieved document, by its id."""


def retrieve(model: TextEncoder, collection: Collection, depth: int = DEPTH) -> dict[str, Ranking]:
    """The documents nearest to each judged query, by exact search with the model's similarity: dot product, or else
    cosine. Queries and documents get the model's prompts of retrieval.
    """
    settings = model.sentence_settings
    names, ids = list(collection.judgments), list(collection.documents)
    normalize = None if settings.similarity == "dot" else True
    query_prompt, document_prompt = settings.retrieval_prompts
    documents = model.embed(collection.documents.values(), normalize=normalize, prompt=document_prompt)
    queries = model.embed([collection.queries[name] for name in names], normalize=normalize, prompt=query_prompt)
    scores, nearest = Corpus(documents, model.device).top_k(queries, depth + 1)
    rankings = {}
    for name, near, of_query in zip(names, nearest.tolist(), scores.tolist(), strict=True):
        ranking = {ids[index]: score for index, score in zip(near, of_query, strict=True)}
        if name in collection.own_documents:
            ranking.pop(name, None)
        rankings[name] = dict(islice(ranking.items(), depth))
    return rankings


def rerank(
    model: Model, collection: Collection, rankings: Mapping[str, Ranking], depth: int = 100
) -> dict[str, Ranking]:
    """Rerank the best ``depth`` documents of each ranking by the scores of a cross-encoder; the others are dropped.

    Raises:
        UsageError: a model with several labels.
    """
    check_model(model)
    results = {}
    for query, ranking in rankings.items():
        best = in_order(ranking)[:depth]
        ranked = model.rank(collection.queries[query], [collection.documents[name] for name in best])
        results[query] = {best[one.index]: one.score for one in ranked}
    return results


def in_order(ranking: Ranking) -> list[str]:
    """Documents, best first; for equal float32 scores the larger id first, as in trec_eval."""
    return sorted(ranking, key=lambda name: (np.float32(ranking[name]), name), reverse=True)


def retrieval_scores(
    judgments: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Ranking]
) -> dict[str, np.ndarray]:
    """(Q,) values of each measure: ndcg_at_10, map, mrr, recall_at_1, _10, _100, judged_at_10.

    As trec_eval: gains are grades, the discount is the logarithm of the rank plus one, and every judged document counts
    in the ideal ranking. A query without a ranking has 0.
    """
    rows = [_scores(grades, in_order(rankings.get(query, {}))) for query, grades in judgments.items()]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def measured_retrieval(scores: Mapping[str, np.ndarray]) -> dict[str, Measured]:
    """Means over queries with 95 % bootstrap intervals; also for score differences of two models."""
    return {name: measured_mean(values) for name, values in scores.items()}


def check_ids(collection: Collection) -> None:
    """Check that `write_run` can write the ids, before long work.

    Raises:
        DataError: an id that is empty or has white space, which separates the fields of a run file.
    """
    for name in chain(collection.judgments, collection.documents):
        if name.split() != [name]:
            raise DataError(
                f"the id {name!r:.60} cannot be written to a run file: expected ids without white space; rename it, or "
                "omit the run file"
            )


def write_run(rankings: Mapping[str, Ranking], write: Callable[[str], object], tag: str = "bertkit") -> None:
    """Write rankings as lines of a trec_eval run file: query, Q0, document, rank, score, tag.

    trec_eval ignores the rank and orders by score, so scores are written with all digits of float32.
    """
    for query, ranking in rankings.items():
        for rank, name in enumerate(in_order(ranking), start=1):
            write(f"{query} Q0 {name} {rank} {ranking[name]:.9g} {tag}\n")


def _scores(grades: Mapping[str, int], order: Sequence[str]) -> dict[str, float]:
    gains = np.array([max(grades.get(name, 0), 0) for name in order], np.float64)
    is_relevant = gains > 0
    num_relevant = sum(grade > 0 for grade in grades.values())
    ranks = np.arange(1, len(gains) + 1)
    precisions = is_relevant.cumsum() / ranks
    ideal = np.sort([max(grade, 0) for grade in grades.values()])[::-1][:CUTOFF]
    first = np.flatnonzero(is_relevant)
    return {
        f"ndcg_at_{CUTOFF}": _discounted(gains[:CUTOFF]) / _discounted(ideal),
        "map": float((precisions * is_relevant).sum() / num_relevant),
        "mrr": float(1 / ranks[first[0]]) if len(first) else 0.0,
        **{f"recall_at_{cutoff}": float(is_relevant[:cutoff].sum() / num_relevant) for cutoff in RECALLS},
        f"judged_at_{CUTOFF}": float(np.mean([name in grades for name in order[:CUTOFF]])) if len(order) else 0.0,
    }


def _discounted(gains: np.ndarray) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
