"""/search: passages of the served index for a query, and answers from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import Field

from bertkit.inference import InferenceReport
from bertkit.search.filter_syntax import filter_of
from bertkit.search.ranking import Mode
from bertkit.search.results import Result, Results
from bertkit.serving.jobs import Verb
from bertkit.serving.refusals import WrongModelKind
from bertkit.serving.routes import Body, Routes
from bertkit.serving.served_models import ANSWERING, RERANKING
from bertkit.serving.service import Question, Service
from bertkit.serving.shared_model import SharedModel

if TYPE_CHECKING:
    from bertkit.model import Model
    from bertkit.search.index import Index


class SearchBody(Body):
    """Body of /search."""

    query: Annotated[str, Field(description='A question, or a few words; also "phrases", -without and file:name.')]
    k: Annotated[int, Field(ge=1, le=1_000, description="Number of passages.")] = 5
    mode: Annotated[
        Mode, Field(description="By all that the index has, or only by vectors, words or learned sparse vectors.")
    ] = "hybrid"
    plain: Annotated[bool, Field(description='Take the query as it is, without "phrases", -without and file:.')] = False
    where: Annotated[
        dict[str, Any] | None,
        Field(description='Metadata that a passage must have, such as {"kind": "cats", "year": {"$gte": 2021}}.'),
    ] = None
    rerank: Annotated[bool, Field(description="Re-rank the first hundred with the served re-ranker.")] = False
    answer: Annotated[bool, Field(description="Also answer with the served question-answering model.")] = False


routes = Routes("search")


@routes.post("/search")
def search(service: Service, body: SearchBody) -> Question:
    """Passages of the store, best first; with `answer` also spans of its documents that answer the query."""
    models = service.models
    index = models.index
    if index is None:
        raise WrongModelKind("no store is served here: start the server with --store FOLDER")
    reranker = models.choose(None, [RERANKING], "a re-ranker")[0].model if body.rerank else None
    answerer = models.choose(None, [ANSWERING], "a question answering")[0].model if body.answer else None
    where = filter_of(body.where) if body.where else None
    options: dict[str, Any] = {"k": body.k, "mode": body.mode, "plain": body.plain, "where": where}

    def found(queries: Sequence[str], report: InferenceReport) -> list[Results]:
        return index.search_many(queries, **options, reranker=reranker, report=report)

    key = (index, body.k, body.mode, body.plain, orjson.dumps(body.where))
    has_run = body.mode in ("hybrid", "dense") and isinstance(index.encoder.model, SharedModel)
    verb = Verb(
        _Steps(index, found, answerer).next,
        key if has_run and not (reranker or answerer) else None,  # with a key, equal searches share a pass
        is_long=True,
        is_wide=True,
    )
    return Question(verb, [body.query], is_one=True, metrics="request")


@dataclass
class _Steps:
    """Searches, and then answers from the passages of one."""

    index: Index
    search: Callable[[Sequence[str], InferenceReport], list[Results]]
    answerer: Model | None
    found: Results | None = None

    def next(self, queries: Sequence[str], report: InferenceReport) -> list[dict[str, Any]] | None:
        """The results; None after a step that another one follows."""
        if self.answerer is None:
            return list(map(_as_json, self.search(queries, report)))
        if self.found is None:
            (self.found,) = self.search(queries, report)
            return None
        answers = self.index.answers_from(queries[0], self.found, self.answerer)
        rows = [one.row | {"rank": one.result.rank} for one in answers]
        return [_as_json(self.found) | {"answers": rows}]


def _as_json(found: Results) -> dict[str, Any]:
    return {
        "results": [_passage(result) for result in found],
        "missing": list(found.missing),
        "missing_keys": list(found.missing_keys),
    }


def _passage(result: Result) -> dict[str, Any]:
    """A passage; ``start`` and ``end`` are characters of its document, as are those of its snippet and matches."""
    return {
        "rank": result.rank,
        "score": result.score,
        "also_in": [],
        "file_state": result.file_state,
        "lines": None,
        **result.location,
        "context": result.context,
        "text": result.text,
        "snippet": result.snippet._asdict(),
        "matches": result.matches,
        "metadata": dict(result.metadata),
    }
