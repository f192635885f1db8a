"""Routes of text-embeddings-inference over vectors and tokens: /embed, /embed_all, /embed_sparse, /similarity,
/tokenize, /decode."""

from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from pydantic import Field

from bertkit.serving.bodies import ACCEPTS_INPUT, ACCEPTS_TEXTS, ModelBody, PromptBody
from bertkit.serving.embedding import (
    Embedding,
    Input,
    as_fragment,
    cosines,
    embedded,
    inputs_of,
    refuse_endless,
    sparse_vectors,
    text_like,
    text_of_ids,
    token_vectors,
)
from bertkit.serving.json_route import Body, JsonRoute, accepts
from bertkit.serving.refusals import refuse_empty
from bertkit.serving.served_models import FEATURES, FILL_MASK, QUERY, Served, ServedModel, ServedModels, role_of
from bertkit.serving.service import Service
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer import Encoding

_BYTES_PER_TOKEN = 100
"""About the JSON of a token of /tokenize."""


class InputsBody(PromptBody):
    """Body of /embed_all and /embed_sparse."""

    inputs: Annotated[Input, ACCEPTS_INPUT, Field(description="A text, its token ids, or a list of texts.")]


class EmbedBody(InputsBody):
    """Body of /embed."""

    normalize: Annotated[bool, Field(description="Scale vectors to length 1.")] = True
    dimensions: Annotated[int | None, Field(ge=1, description="Keep the first N components.")] = None


class Sentences(Body):
    """A sentence and those it is compared with."""

    source_sentence: Annotated[str, Field(description="The text to compare the others with.")]
    sentences: Annotated[list[str], Field(description="The other texts.")]


class SimilarityBody(ModelBody):
    """Body of /similarity."""

    inputs: Annotated[Sentences, Field(description="A text, and texts to compare it with.")]
    parameters: Annotated[PromptBody | None, Field(description="Truncation and the prompt.")] = None


class TokenizeBody(ModelBody):
    """Body of /tokenize."""

    inputs: Annotated[str | list[str], ACCEPTS_TEXTS, Field(description="A text or several.")]
    add_special_tokens: Annotated[bool, Field(description="Put [CLS] and [SEP] around the tokens.")] = True
    prompt_name: Annotated[
        str | None, Field(description="One of the model's prompts, which is put before the text.")
    ] = None


class DecodeBody(ModelBody):
    """Body of /decode."""

    ids: Annotated[
        list[int] | list[list[int]],
        accepts("a list of token ids, or a list of such lists"),
        Field(description="Token ids of a text or of several."),
    ]
    skip_special_tokens: Annotated[bool, Field(description="Leave [CLS], [SEP] and [PAD] out of the text.")] = True


def embedding_routes(service: Service) -> APIRouter:
    """The routes, for an app."""
    router = APIRouter(route_class=JsonRoute, tags=["text-embeddings-inference"])

    def chosen(model: str | None, body: PromptBody) -> tuple[ServedModel, str | None]:
        """The model, and the name of its prompt."""
        served, named_role = service.models.choose(model, [FEATURES], "an embedding")
        return served, served.prompt_of(role_of(body.input_type) or named_role, body.prompt_name)

    @router.post("/embed")
    async def embed_inputs(body: EmbedBody, request: Request) -> Response:
        """One vector for each input."""
        served, prompt_name = chosen(body.model, body)
        embedding = Embedding(served, body.normalize, body.dimensions, prompt_name, body.policy)
        return await embedded(service, request, embedding, inputs_of(body.inputs))

    @router.post("/embed_all")
    async def embed_all(body: InputsBody, request: Request) -> Response:
        """The last hidden state of every token, special tokens included."""
        served, prompt_name = chosen(body.model, body)
        inputs, on_long = inputs_of(body.inputs), body.policy

        def work(ticket: Ticket) -> list[np.ndarray]:
            texts = _texts(served, inputs)
            return token_vectors(service, served, texts, ticket, prompt_name=prompt_name, on_long=on_long)

        return await service.answer(request, _sizes(inputs), work, verb="embed")

    @router.post("/embed_sparse")
    async def embed_sparse(body: InputsBody, request: Request) -> Response:
        """Learned sparse vectors (SPLADE) of a masked language model: index and value of each nonzero weight."""
        served, named_role = service.models.choose(body.model, [FILL_MASK], "a sparse embedding (SPLADE)")
        role = role_of(body.input_type) or named_role
        prompt_name, inputs, on_long = served.prompt_of(role, body.prompt_name), inputs_of(body.inputs), body.policy

        def work(ticket: Ticket) -> Any:
            return sparse_vectors(
                service,
                served,
                _texts(served, inputs),
                ticket,
                as_queries=role == QUERY,
                prompt_name=prompt_name,
                on_long=on_long,
            )

        return await service.answer(request, _sizes(inputs), work, verb="embed")

    @router.post("/similarity")
    async def similarity(body: SimilarityBody, request: Request) -> Response:
        """Cosine of a sentence with each of others."""
        parameters = body.parameters or PromptBody()
        served, prompt_name = chosen(body.model, parameters)
        refuse_empty([body.inputs.source_sentence], "inputs.source_sentence", is_one=True)
        refuse_empty(body.inputs.sentences, "inputs.sentences")
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        embedding = Embedding(served, prompt_name=prompt_name, on_long=parameters.policy)
        return await embedded(service, request, embedding, texts, cosines)

    @router.post("/tokenize")
    async def tokenize(body: TokenizeBody, request: Request) -> Response:
        """The tokens of texts: the entry of the vocabulary, and its text; `start` and `stop` count bytes of UTF-8."""
        served = _tokenizing(service.models) if body.model is None else service.models.named(body.model)[0]
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        prompt = served.prompts.get(served.prompt_of(None, body.prompt_name) or "", "")

        def tokens(text: str, ticket: Ticket) -> orjson.Fragment:
            encoding = served.tokenizer.encode(text)
            service.reserve(ticket, len(encoding) * _BYTES_PER_TOKEN)
            return as_fragment(_tokens(served, text, encoding, body.add_special_tokens))

        def work(ticket: Ticket) -> Any:
            refuse_endless(served, texts)
            return [tokens(prompt + text, ticket) for text in texts]

        return await service.answer(request, texts, work)

    @router.post("/decode")
    async def decode(body: DecodeBody, request: Request) -> Response:
        """The texts of token ids."""
        served = service.models.first if body.model is None else service.models.named(body.model)[0]
        rows: Any = body.ids if body.ids and isinstance(body.ids[0], list) else [body.ids]

        def work(ticket: Ticket) -> list[str]:
            tokenizer, skip = served.tokenizer, body.skip_special_tokens
            return [tokenizer.decode(ids, skip_special_tokens=skip) for ids in rows]

        return await service.answer(request, [" " * len(ids) for ids in rows], work)

    return router


def _tokenizing(models: ServedModels) -> Served:
    """The first model that can tokenize: tokenizers without special tokens, as GPT-2's, cannot encode a text."""
    return next((one for one in models.all.values() if one.tokenizer.engine.template.wraps), models.first)


def _texts(served: ServedModel, inputs: list[str | list[int]]) -> list[str]:
    return [one if isinstance(one, str) else text_of_ids(served, one) for one in inputs]


def _sizes(inputs: list[str | list[int]]) -> list[str]:
    return list(map(text_like, inputs))


def _tokens(served: Served, text: str, encoding: Encoding, with_special: bool) -> list[dict[str, Any]]:
    starts = np.cumsum([0, *(len(character.encode()) for character in text)])  # bytes before each character
    rows = zip(
        encoding.input_ids.tolist(),
        served.tokenizer.tokens(encoding),
        encoding.special_tokens_mask.tolist(),
        encoding.offsets.tolist(),
        strict=True,
    )
    return [
        {
            "id": token_id,
            "text": token if is_special else text[start:end],
            "token": token,
            "special": is_special,
            "start": None if is_special else int(starts[start]),
            "stop": None if is_special else int(starts[end]),
        }
        for token_id, token, is_special, (start, end) in rows
        if with_special or not is_special
    ]
