"""Retrieval evaluation: collections in the BEIR layout, rankings, and the scores of trec_eval.

Shape letters: Q queries. A ranking has the documents of a query, best first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertkit.errors import DataError
from bertkit.evidence.intervals import Measured, bootstrap_interval
from bertkit.files import location
from bertkit.files.labeled_tables import open_table, text_of
from bertkit.inference.text_encoder import TextEncoder
from bertkit.model import Model
from bertkit.neighbors import top_k

CUTOFF = 10
RECALLS = (1, 10, 100)
DEPTH = 1_000
"""Number of documents in a ranking."""

Ranking = dict[str, float]
"""The score of each retrieved document, by its id."""


@dataclass(frozen=True)
class Collection:
    """Queries and documents by id, and the judgments: query id -> document id -> grade, 0 for not relevant."""

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    judgments: Mapping[str, Mapping[str, int]]
    num_without_positives: int = 0  # judged queries without a relevant document, which are skipped


def read_collection(folder: Path) -> Collection:
    """Read a collection from a folder: corpus.jsonl with _id, title and text, queries.jsonl with _id and text, and
    judgments with query-id, corpus-id and score in qrels/test.tsv or qrels.tsv.

    The text of a document is its title and text joined, as in BEIR (Thakur et al. 2021).

    Raises:
        DataError: a missing file, an unreadable row, a judgment of an unknown query or document, or no query with a
            relevant document.
    """
    documents = {
        name: f"{row['title']} {text}".strip() if isinstance(row.get("title"), str) else text
        for name, text, row in _texts(folder / "corpus.jsonl")
    }
    queries = {name: text for name, text, _ in _texts(folder / "queries.jsonl")}
    path = next((path for path in (folder / "qrels" / "test.tsv", folder / "qrels.tsv") if path.is_file()), None)
    if path is None:
        raise DataError(f"{folder} has neither qrels/test.tsv nor qrels.tsv: expected judgments in one of them")
    judgments: dict[str, dict[str, int]] = {}
    columns = ("query-id", "corpus-id", "score")
    with open_table(path, [], columns) as table:
        for column in columns:
            table.require(column, column, ())
        for row in table.rows:
            query, document, grade = (str(row.values.get(column, "")) for column in columns)
            problem = row.problem
            if not problem and not grade.lstrip("-").isdecimal():
                problem = f" has the grade {grade!r:.40}: expected an integer"
            for name, known in ((query, queries), (document, documents)):
                if not problem and name not in known:
                    problem = f" judges {name!r:.60}, which is in neither corpus.jsonl nor queries.jsonl"
            if problem:
                raise DataError(f"{location(path, row.line)}{problem}")
            judgments.setdefault(query, {})[document] = int(grade)
    kept = {query: grades for query, grades in judgments.items() if max(grades.values()) > 0}
    if not kept:
        raise DataError(f"{path} has no query with a relevant document")
    return Collection(queries, documents, kept, len(judgments) - len(kept))


def _texts(path: Path) -> list[tuple[str, str, Mapping[str, object]]]:
    with open_table(path, [], ["_id", "text"]) as table:
        results = []
        for row in table.rows:
            text, problem = text_of(row.values, "text")
            if problem or row.problem or "_id" not in row.values:
                raise DataError(f"{location(path, row.line)}{row.problem or problem or ' has no _id'}")
            results.append((str(row.values["_id"]), text, row.values))
    return results


def retrieve(model: TextEncoder, collection: Collection, depth: int = DEPTH) -> dict[str, Ranking]:
    """The documents nearest to each judged query, by exact search with the model's similarity: dot product, or else
    cosine. The model's prompts "query" and "document" or "passage" are used if it has them.
    """
    settings = model.sentence_settings
    names, ids = list(collection.judgments), list(collection.documents)
    normalize = None if settings.similarity == "dot" else True
    document_prompt = next((name for name in ("document", "passage", "corpus") if name in settings.prompts), None)
    documents = model.embed(
        collection.documents.values(),
        normalize=normalize,
        prompt=settings.prompts[document_prompt] if document_prompt else "",
    )
    queries = model.embed(
        [collection.queries[name] for name in names], normalize=normalize, prompt=settings.prompts.get("query", "")
    )
    scores, nearest = top_k(queries, documents, depth)
    return {
        name: {ids[index]: float(score) for index, score in zip(near, of_query, strict=True)}
        for name, near, of_query in zip(names, nearest.tolist(), scores, strict=True)
    }


def rerank(
    model: Model, collection: Collection, rankings: Mapping[str, Ranking], depth: int = 100
) -> dict[str, Ranking]:
    """Rerank the best ``depth`` documents of each ranking by the scores of a cross-encoder; the others are dropped."""
    results = {}
    for query, ranking in rankings.items():
        best = in_order(ranking)[:depth]
        scores = model.score_pairs(collection.queries[query], [collection.documents[name] for name in best])
        results[query] = dict(zip(best, map(float, scores), strict=True))
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
    return {name: Measured(float(values.mean()), *bootstrap_interval(values)) for name, values in scores.items()}


def write_run(rankings: Mapping[str, Ranking], write: Callable[[str], object], tag: str = "bertkit") -> None:
    """Write rankings as lines of a trec_eval run file: query, Q0, document, rank, score, tag."""
    for query, ranking in rankings.items():
        for rank, name in enumerate(in_order(ranking), start=1):
            write(f"{query} Q0 {name} {rank} {ranking[name]:.7g} {tag}\n")


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
