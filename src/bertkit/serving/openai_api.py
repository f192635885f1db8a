"""OpenAI's routes: /v1/embeddings and /v1/models, for OpenAI's client and compatible ones."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from bertkit.serving.bodies import Dimensions, Input, PromptFields, inputs_of
from bertkit.serving.embedding_api import vectors
from bertkit.serving.refusals import MalformedRequest
from bertkit.serving.routes import Routes
from bertkit.serving.served_models import DOCUMENT, QUERY, Served
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import embedding
from bertkit.tokenizer.layout import OnLong


class EmbeddingsBody(PromptFields):
    """Body of /v1/embeddings."""

    ignored: ClassVar[frozenset[str]] = frozenset({"user"})

    input: Annotated[Input, Field(description="A text or a list of texts; token ids only if the server accepts them.")]
    model: Annotated[str | None, Field(description="A served model, its name plus -query or -document.")] = None
    encoding_format: Annotated[Literal["float", "base64"], Field(description="base64: little-endian float32.")] = (
        "float"
    )
    dimensions: Dimensions = None
    on_long: Annotated[OnLong, Field(description="What to do with texts that are too long.")] = "truncate"


routes = Routes("OpenAI")


@routes.post("/embeddings", is_described=False)
@routes.post("/v1/embeddings")
def embeddings(service: Service, body: EmbeddingsBody) -> Question:
    """Embed texts; vectors have length 1."""
    served, role = body.role(service)
    inputs = inputs_of(body.input, "input")
    if any(isinstance(one, tuple) for one in inputs) and not service.settings.accept_token_ids:
        raise MalformedRequest(
            "input has token ids, which are wrong unless the client uses the tokenizer of "
            f"{served.name}: send texts. LangChain's OpenAIEmbeddings sends texts with "
            "check_embedding_ctx_length=False. A server started with --accept-token-ids takes ids of the served "
            "model's tokenizer"
        )

    def answer(rows: Sequence[np.ndarray], ticket: Ticket) -> dict[str, Any]:
        values = map(_as_base64, rows) if body.encoding_format == "base64" else rows
        return {
            "object": "list",
            "data": [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(values)],
            "model": body.model or served.name,
            "usage": {"prompt_tokens": ticket.num_tokens, "total_tokens": ticket.num_tokens},
        }

    verb = embedding(served, body.on_long, served.prompt_of(role, body.prompt_name), dimensions=body.dimensions)
    return vectors(served, body.on_long, verb, inputs, answer)


@routes.get("/v1/models")
def models(service: Service) -> dict[str, Any]:
    """The served models, and for those with prompts their names with a role."""
    rows = [
        _row(name, served)
        for served in service.models.all.values()
        for name in (
            served.name,
            *(f"{served.name}-{role}" for role in (QUERY, DOCUMENT) if served.prompt_of(role, None)),
        )
    ]
    return {"object": "list", "data": rows}


@routes.get("/v1/models/{name}")
def model(service: Service, name: str) -> dict[str, Any]:
    """One served model."""
    return _row(name, service.models.named(name)[0])


def _as_base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _row(name: str, served: Served) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": served.loaded, "owned_by": "bertkit"}
