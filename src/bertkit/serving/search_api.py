"""/search: passages of the served index for a query, and answers from them."""

from typing import Annotated, Any

from pydantic import Field

from bertkit.inference import InferenceReport
from bertkit.search.filter_syntax import filter_of
from bertkit.search.ranking import Mode
from bertkit.search.results import Result
from bertkit.serving.refusals import WrongModelKind
from bertkit.serving.routes import Body, Routes
from bertkit.serving.served_models import ANSWERING, RERANKING
from bertkit.serving.service import Service, Work
from bertkit.serving.ticket import Ticket


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


def search_routes(service: Service) -> Routes:
    """The route, for an app."""
    routes = Routes("search")

    @routes.post("/search")
    def search(body: SearchBody) -> Work:
        """Passages of the store, best first; with `answer` also spans of its documents that answer the query."""
        models = service.models
        index = models.index
        if index is None:
            raise WrongModelKind("no store is served here: start the server with --store FOLDER")
        reranker = models.choose(None, [RERANKING], "a re-ranker")[0].model if body.rerank else None
        answerer = models.choose(None, [ANSWERING], "a question answering")[0].model if body.answer else None
        where = filter_of(body.where) if body.where else None

        def work(ticket: Ticket) -> Any:
            report = InferenceReport()
            options = {"mode": body.mode, "plain": body.plain, "where": where, "reranker": reranker, "report": report}
            results = index.search(body.query, body.k, **options)
            ticket.count(report.num_texts_cut, report)
            answer = {
                "results": [_as_json(result) for result in results],
                "missing": list(results.missing),
                "missing_keys": list(results.missing_keys),
            }
            if answerer is None:
                return answer
            return answer | {
                "answers": [
                    {"answer": one.text, "document": one.document_id, "start": one.start, "end": one.end,
                     "probability": one.probability, "rank": one.result.rank}
                    for one in index.answers_from(body.query, results, answerer)
                ]
            }  # fmt: skip

        return Work([body.query], work, searches=True)

    return routes


def _as_json(result: Result) -> dict[str, Any]:
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
