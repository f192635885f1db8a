"""/rerank: texts ranked by relevance to a query, in the format of text-embeddings-inference, or of Cohere if the body
has `documents`."""

from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import ConfigDict, Field

from bertkit.heads.projection import activated
from bertkit.serving.bodies import TextsBody
from bertkit.serving.refusals import EmptyInput, InvalidRequest, MalformedRequest
from bertkit.serving.routes import Body, Routes, accepts
from bertkit.serving.served_models import RERANKING
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import prediction


class Document(Body):
    """A document in the format of Cohere and Jina, whose other fields are not scored."""

    model_config = ConfigDict(extra="ignore")

    text: Annotated[str, Field(description="The text to score.")]


TextOrDocument = Annotated[str | Document, accepts("a text, or an object with a text as its text")]


class RerankBody(TextsBody):
    """Body of /rerank: `texts`, or `documents` for an answer in Cohere's form."""

    ignored: ClassVar[frozenset[str]] = frozenset({"max_tokens_per_doc", "max_chunks_per_doc", "priority"})

    query: Annotated[str, Field(description="What the texts are scored for.")]
    texts: Annotated[
        list[str] | None, Field(description="Texts; the response is that of text-embeddings-inference.")
    ] = None
    raw_scores: Annotated[bool, Field(description="Return logits instead of their sigmoid.")] = False
    return_text: Annotated[bool, Field(description="Repeat each text in the response.")] = False
    documents: Annotated[list[TextOrDocument] | None, Field(description="Texts; the response is that of Cohere.")] = (
        None
    )
    top_n: Annotated[int | None, Field(ge=1, description="Keep the best N.")] = None
    return_documents: Annotated[bool, Field(description="As return_text, with Cohere's name.")] = False
    rank_fields: Annotated[list[str] | None, Field(description="Only text: documents are scored by their text.")] = None


routes = Routes("re-ranking")


@routes.post("/rerank", "/v1/rerank", "/v2/rerank")
def rerank(service: Service, body: RerankBody) -> Question:
    """Score texts against a query, best first."""
    served = body.chosen(service, [RERANKING], "a re-ranker")
    if (body.texts is None) == (body.documents is None):
        raise InvalidRequest("expected either texts, or documents for a response in the format of Cohere")
    if body.rank_fields is not None and body.rank_fields != ["text"]:
        raise MalformedRequest(f"rank_fields {', '.join(body.rank_fields)}: documents are scored by their text only")
    documents = (body.documents or []) if body.texts is None else body.texts
    texts = [each if isinstance(each, str) else each.text for each in documents]
    if not texts:
        raise EmptyInput(f"`{'texts' if body.documents is None else 'documents'}` cannot be empty")
    if not body.query:
        raise EmptyInput("`query` cannot be empty")

    def ranked(rows: list[np.ndarray], ticket: Ticket) -> Any:
        logits = np.array(rows, np.float32)[:, 0]  # (N,)
        scores = logits if body.raw_scores else activated(logits, "Sigmoid")
        order = np.argsort(-scores, kind="stable").tolist()[: body.top_n]
        with_text = body.return_text or body.return_documents
        if body.documents is None:
            return [
                {"index": index, **({"text": texts[index]} if with_text else {}), "score": scores[index]}
                for index in order
            ]
        return {
            "results": [
                {
                    "index": index,
                    "relevance_score": scores[index],
                    **({"document": {"text": texts[index]}} if with_text else {}),
                }
                for index in order
            ],
            "model": body.model or served.name,
            "usage": {"prompt_tokens": ticket.num_tokens, "total_tokens": ticket.num_tokens},
            "meta": {"billed_units": {"search_units": 1}},
        }

    verb, pairs = prediction(served, body.policy, as_logits=True), [(body.query, text) for text in texts]
    return Question(verb, pairs, ranked, texts=[body.query, *texts])
