"""Routes of text-embeddings-inference over vectors and tokens: /embed, /embed_all, /embed_sparse, /similarity,
/tokenize, /decode."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import orjson
from pydantic import Field

from bertkit.inference import InferenceReport
from bertkit.serving.bodies import Dimensions, InputsBody, ModelBody, OneOrMoreBody, PromptBody, PromptName, inputs_of
from bertkit.serving.calls import current_call
from bertkit.serving.jobs import Finish, Verb
from bertkit.serving.refusals import InvalidRequest, refuse_empty
from bertkit.serving.routes import Body, Routes, accepts
from bertkit.serving.served_models import FILL_MASK, QUERY, Served, ServedModel, ServedModels
from bertkit.serving.service import Question, Service, as_they_are
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import TextOrIds, embedding, sparse_embedding, token_vectors
from bertkit.tokenizer import Encoding
from bertkit.tokenizer.layout import OnLong

_BYTES_PER_TOKEN, _BYTES_PER_WEIGHT = 100, 40
"""About the JSON of a token of /tokenize, and of a weight with its index."""


class EmbedBody(InputsBody):
    """Body of /embed."""

    normalize: Annotated[bool, Field(description="Scale vectors to length 1.")] = True
    dimensions: Dimensions = None


class Sentences(Body):
    """A sentence and those it is compared with."""

    source_sentence: Annotated[str, Field(description="The text to compare the others with.")]
    sentences: Annotated[list[str], Field(description="The other texts.")]


class SimilarityBody(ModelBody):
    """Body of /similarity."""

    inputs: Annotated[Sentences, Field(description="A text, and texts to compare it with.")]
    parameters: Annotated[PromptBody | None, Field(description="Truncation and the prompt.")] = None


class TokenizeBody(OneOrMoreBody):
    """Body of /tokenize."""

    special_tokens_in_text: Annotated[
        bool, Field(description="Read a literal [MASK] as that token, as /fill and /inspect do; else it is text.")
    ] = False
    add_special_tokens: Annotated[bool, Field(description="Put [CLS] and [SEP] around the tokens.")] = True
    prompt_name: PromptName = None


class DecodeBody(ModelBody):
    """Body of /decode."""

    ids: Annotated[
        list[int] | list[list[int]],
        accepts("a list of token ids, or a list of such lists"),
        Field(description="Token ids of a text or of several."),
    ]
    skip_special_tokens: Annotated[bool, Field(description="Leave [CLS], [SEP] and [PAD] out of the text.")] = True


routes = Routes("text-embeddings-inference")


@routes.post("/embed")
def embed(service: Service, body: EmbedBody) -> Question:
    """One vector for each input."""
    served, role = body.role(service)
    options = {"normalize": body.normalize, "dimensions": body.dimensions}
    verb = embedding(served, body.policy, served.prompt_of(role, body.prompt_name), **options)
    return vectors(served, body.policy, verb, inputs_of(body.inputs))


@routes.post("/embed_all")
def embed_all(service: Service, body: InputsBody) -> Question:
    """The last hidden state of every token, special tokens included."""
    served, role = body.role(service)
    verb = token_vectors(served, body.policy, served.prompt_of(role, body.prompt_name))
    return vectors(served, body.policy, verb, inputs_of(body.inputs))


@routes.post("/embed_sparse")
def embed_sparse(service: Service, body: InputsBody) -> Question:
    """Learned sparse vectors (SPLADE) of a masked language model: index and value of each nonzero weight."""
    served, role = body.role(service, FILL_MASK, "a sparse embedding (SPLADE)")

    def weights(rows: list[tuple[np.ndarray, np.ndarray]], ticket: Ticket) -> list[orjson.Fragment]:
        ticket.reserve(sum(len(ids) for ids, _ in rows) * _BYTES_PER_WEIGHT)
        return [
            _as_fragment([{"index": index, "value": value} for index, value in zip(*parts, strict=True)])
            for parts in ([part.tolist() for part in row] for row in rows)
        ]

    prompt_name = served.prompt_of(role, body.prompt_name)
    verb = sparse_embedding(served, body.policy, prompt_name, as_queries=role == QUERY)
    return vectors(served, body.policy, verb, inputs_of(body.inputs), weights)


@routes.post("/similarity")
def similarity(service: Service, body: SimilarityBody) -> Question:
    """Cosine of a sentence with each of others."""
    parameters = body.parameters or PromptBody()
    return cosines(service, parameters.model_copy(update={"model": body.model or parameters.model}), body.inputs)


@routes.post("/tokenize")
def tokenize(service: Service, body: TokenizeBody) -> Question:
    """The tokens of texts: the entry of the vocabulary, and its text; `start` and `stop` count bytes of UTF-8."""
    served = _tokenizing(service.models) if body.model is None else service.models.named(body.model)[0]
    prompt = served.prompts.get(served.prompt_of(None, body.prompt_name) or "", "")
    _refuse_endless(served, body.as_list)

    def tokens(part: Sequence[str], report: InferenceReport) -> list[orjson.Fragment]:
        rows, call = [], current_call()
        assert call is not None
        for text in part:
            encoding = served.tokenizer.encode(prompt + text, special_tokens_in_text=body.special_tokens_in_text)
            call.ticket.reserve(len(encoding) * _BYTES_PER_TOKEN)
            rows.append(_as_fragment(_tokens(served, prompt + text, encoding, body.add_special_tokens)))
        return rows

    return Question(Verb(tokens), body.as_list, metrics="request")


@routes.post("/decode")
def decode(service: Service, body: DecodeBody) -> Question:
    """The texts of token ids."""
    served = service.models.first if body.model is None else service.models.named(body.model)[0]
    rows: Any = body.ids if body.ids and isinstance(body.ids[0], list) else [body.ids]

    def texts(part: Sequence[list[int]], report: InferenceReport) -> list[str]:
        return [served.tokenizer.decode(ids, skip_special_tokens=body.skip_special_tokens) for ids in part]

    return Question(Verb(texts, likely_tokens=len), rows, metrics="request")


def vectors(
    served: ServedModel, policy: OnLong, verb: Verb, inputs: Sequence[TextOrIds], finish: Finish = as_they_are
) -> Question:
    """Vectors, or what ``finish`` makes of them.

    Raises:
        InvalidRequest: a text that is far too long.
    """
    texts = [one if isinstance(one, str) else " " * len(one) for one in inputs]  # to count characters
    if policy == "error":
        _refuse_endless(served, texts)
    return Question(verb, inputs, finish, texts=texts, metrics="embed")


def cosines(service: Service, body: PromptBody, inputs: Sentences, dimensions: int | None = None) -> Question:
    """Cosines of a sentence with others, (N,).

    Raises:
        EmptyInput: a sentence is empty, or there are no others.
    """
    refuse_empty([inputs.source_sentence], "inputs.source_sentence", is_one=True)
    refuse_empty(inputs.sentences, "inputs.sentences")
    served, role = body.role(service)

    def products(rows: Sequence[np.ndarray], ticket: Ticket) -> np.ndarray:
        matrix = np.stack(list(rows))
        return matrix[1:] @ matrix[0]

    verb = embedding(served, body.policy, served.prompt_of(role, body.prompt_name), dimensions=dimensions)
    return vectors(served, body.policy, verb, [inputs.source_sentence, *inputs.sentences], products)


def _as_fragment(part: Any) -> orjson.Fragment:
    """A part of an answer as JSON: the objects of Python take ten times the memory."""
    return orjson.Fragment(orjson.dumps(part))


def _refuse_endless(served: Served, texts: Sequence[str]) -> None:
    """Reject texts that are too long by their number of characters, before tokenization."""
    most = served.most_characters
    if longest := next((len(text) for text in texts if len(text) > most), None):
        raise InvalidRequest(f"Input validation error: `inputs` must have at most {most} characters. Given: {longest}")


def _tokenizing(models: ServedModels) -> Served:
    """The first model that can tokenize: tokenizers without special tokens, as GPT-2's, cannot encode a text."""
    return next((one for one in models.all.values() if one.tokenizer.engine.template.wraps), models.first)


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
