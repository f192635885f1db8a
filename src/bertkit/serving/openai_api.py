"""OpenAI's routes: /v1/embeddings and /v1/models, for OpenAI's client and compatible ones."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from bertkit.serving.bodies import Input
from bertkit.serving.embedding_api import inputs_of, vectors_of
from bertkit.serving.refusals import MalformedRequest
from bertkit.serving.routes import Body, Routes
from bertkit.serving.served_models import DOCUMENT, FEATURES, QUERY, Served, role_of
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import Embedding
from bertkit.tokenizer.layout import OnLong


class EmbeddingsBody(Body):
    """Body of /v1/embeddings."""

    ignored: ClassVar[frozenset[str]] = frozenset({"user"})

    input: Annotated[Input, Field(description="A text or a list of texts; token ids only if the server accepts them.")]
    model: Annotated[str | None, Field(description="A served model, its name plus -query or -document.")] = None
    encoding_format: Annotated[Literal["float", "base64"], Field(description="base64: little-endian float32.")] = (
        "float"
    )
    dimensions: Annotated[int | None, Field(ge=1, description="Keep the first N components.")] = None
    input_type: Annotated[str | None, Field(description="query or document, for models with prompts.")] = None
    prompt_name: Annotated[str | None, Field(description="One of the model's prompts.")] = None
    on_long: Annotated[OnLong, Field(description="What to do with texts that are too long.")] = "truncate"


def openai_routes(service: Service) -> Routes:
    """The routes, for an app."""
    routes = Routes("OpenAI")

    @routes.post("/embeddings", is_described=False)
    @routes.post("/v1/embeddings")
    def embeddings(body: EmbeddingsBody) -> Question:
        """Embed texts; vectors have length 1."""
        served, named_role = service.models.choose(body.model, [FEATURES], "an embedding")
        prompt_name = served.prompt_of(role_of(body.input_type) or named_role, body.prompt_name)
        inputs = inputs_of(body.input, "input")
        if any(isinstance(one, tuple) for one in inputs) and not service.settings.accept_token_ids:
            raise MalformedRequest(
                "input has token ids, which are wrong unless the client uses the tokenizer of "
                f"{served.name}: send texts. LangChain's OpenAIEmbeddings sends texts with "
                "check_embedding_ctx_length=False. A server started with --accept-token-ids takes ids of the served "
                "model's tokenizer"
            )

        def finish(vectors: Sequence[np.ndarray], ticket: Ticket) -> dict[str, Any]:
            return {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": vector}
                    for index, vector in enumerate(_encoded(vectors) if body.encoding_format == "base64" else vectors)
                ],
                "model": body.model or served.name,
                "usage": {"prompt_tokens": ticket.num_tokens, "total_tokens": ticket.num_tokens},
            }

        verb = Embedding(served, body.on_long, True, body.dimensions, prompt_name)
        return vectors_of(verb, inputs, finish)

    @routes.get("/v1/models")
    def models() -> dict[str, Any]:
        """The served models, and for those with prompts their names with a role."""
        return {"object": "list", "data": [row for served in service.models.all.values() for row in _rows(served)]}

    @routes.get("/v1/models/{name}")
    def model(name: str) -> dict[str, Any]:
        """One served model."""
        return _row(name, service.models.named(name)[0])

    return routes


def _encoded(vectors: Sequence[np.ndarray]) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]


def _rows(served: Served) -> list[dict[str, Any]]:
    roles = [role for role in (QUERY, DOCUMENT) if served.prompt_of(role, None) is not None]
    return [_row(name, served) for name in (served.name, *(f"{served.name}-{role}" for role in roles))]


def _row(name: str, served: Served) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": served.loaded, "owned_by": "bertkit"}
