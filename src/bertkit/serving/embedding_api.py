"""Routes of text-embeddings-inference over vectors and tokens: /embed, /embed_all, /embed_sparse, /similarity,
/tokenize, /decode."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import orjson
from pydantic import Field

from bertkit.inference import InferenceReport
from bertkit.serving.bodies import Input, ModelBody, PromptBody, Texts
from bertkit.serving.calls import current_call
from bertkit.serving.jobs import Function
from bertkit.serving.refusals import InvalidRequest, refuse_empty
from bertkit.serving.routes import Body, Routes, accepts
from bertkit.serving.served_models import FEATURES, FILL_MASK, QUERY, Served, ServedModel, ServedModels, role_of
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import Embedding, ModelVerb, SparseEmbedding, TextOrIds, TokenVectors
from bertkit.tokenizer import Encoding

_BYTES_PER_TOKEN, _BYTES_PER_WEIGHT = 100, 40
"""About the JSON of a token of /tokenize, and of a weight with its index."""


class InputsBody(PromptBody):
    """Body of /embed_all and /embed_sparse."""

    inputs: Annotated[Input, Field(description="A text, its token ids, or a list of texts.")]


class EmbedBody(InputsBody):
    """Body of /embed."""

    normalize: Annotated[bool, Field(description="Scale vectors to length 1.")] = True
    dimensions: Annotated[int | None, Field(ge=1, description="Keep the first N components.")] = None


class Sentences(Body):
    """A sentence and those it is compared with."""

    source_sentence: Annotated[str, Field(description="The text to compare the others with.")]
    sentences: Annotated[list[str], Field(description="The other texts.")]

    @property
    def texts(self) -> list[str]:
        """All of them, the sentence first.

        Raises:
            EmptyInput: one is empty, or there are no others.
        """
        refuse_empty([self.source_sentence], "inputs.source_sentence", is_one=True)
        refuse_empty(self.sentences, "inputs.sentences")
        return [self.source_sentence, *self.sentences]


class SimilarityBody(ModelBody):
    """Body of /similarity."""

    inputs: Annotated[Sentences, Field(description="A text, and texts to compare it with.")]
    parameters: Annotated[PromptBody | None, Field(description="Truncation and the prompt.")] = None


class TokenizeBody(ModelBody):
    """Body of /tokenize."""

    inputs: Annotated[Texts, Field(description="A text or several.")]
    special_tokens_in_text: Annotated[
        bool, Field(description="Read a literal [MASK] as that token, as /fill and /inspect do; else it is text.")
    ] = False
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


def embedding_routes(service: Service) -> Routes:
    """The routes, for an app."""
    routes = Routes("text-embeddings-inference")

    def chosen(body: PromptBody) -> tuple[ServedModel, str | None]:
        """The model, and the name of its prompt."""
        served, named_role = service.models.choose(body.model, [FEATURES], "an embedding")
        return served, served.prompt_of(role_of(body.input_type) or named_role, body.prompt_name)

    @routes.post("/embed")
    def embed_inputs(body: EmbedBody) -> Question:
        """One vector for each input."""
        served, prompt_name = chosen(body)
        verb = Embedding(served, body.policy, body.normalize, body.dimensions, prompt_name)
        return vectors_of(verb, inputs_of(body.inputs))

    @routes.post("/embed_all")
    def embed_all(body: InputsBody) -> Question:
        """The last hidden state of every token, special tokens included."""
        served, prompt_name = chosen(body)
        return vectors_of(TokenVectors(served, body.policy, prompt_name), inputs_of(body.inputs))

    @routes.post("/embed_sparse")
    def embed_sparse(body: InputsBody) -> Question:
        """Learned sparse vectors (SPLADE) of a masked language model: index and value of each nonzero weight."""
        served, named_role = service.models.choose(body.model, [FILL_MASK], "a sparse embedding (SPLADE)")
        role = role_of(body.input_type) or named_role

        def weights(rows: list[tuple[np.ndarray, np.ndarray]], ticket: Ticket) -> list[orjson.Fragment]:
            ticket.reserve(sum(len(ids) for ids, _ in rows) * _BYTES_PER_WEIGHT)
            return [
                _as_fragment([{"index": index, "value": value} for index, value in zip(*parts, strict=True)])
                for parts in ([part.tolist() for part in row] for row in rows)
            ]

        verb = SparseEmbedding(served, body.policy, role == QUERY, served.prompt_of(role, body.prompt_name))
        return vectors_of(verb, inputs_of(body.inputs), weights)

    @routes.post("/similarity")
    def similarity(body: SimilarityBody) -> Question:
        """Cosine of a sentence with each of others."""
        parameters = body.parameters or PromptBody()
        served, prompt_name = chosen(parameters.model_copy(update={"model": body.model or parameters.model}))
        verb = Embedding(served, parameters.policy, prompt_name=prompt_name)
        return vectors_of(verb, body.inputs.texts, cosines)

    @routes.post("/tokenize")
    def tokenize(body: TokenizeBody) -> Question:
        """The tokens of texts: the entry of the vocabulary, and its text; `start` and `stop` count bytes of UTF-8."""
        served = _tokenizing(service.models) if body.model is None else service.models.named(body.model)[0]
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        prompt = served.prompts.get(served.prompt_of(None, body.prompt_name) or "", "")

        def tokens(part: Sequence[str], report: InferenceReport) -> list[orjson.Fragment]:
            rows, call = [], current_call()
            assert call is not None
            for text in part:
                encoding = served.tokenizer.encode(prompt + text, special_tokens_in_text=body.special_tokens_in_text)
                call.ticket.reserve(len(encoding) * _BYTES_PER_TOKEN)
                rows.append(_as_fragment(_tokens(served, prompt + text, encoding, body.add_special_tokens)))
            return rows

        _refuse_endless(served, texts)
        return Question(texts, Function(tokens), texts, as_they_are, "request")

    @routes.post("/decode")
    def decode(body: DecodeBody) -> Question:
        """The texts of token ids."""
        served = service.models.first if body.model is None else service.models.named(body.model)[0]
        rows: Any = body.ids if body.ids and isinstance(body.ids[0], list) else [body.ids]

        def texts(part: Sequence[list[int]], report: InferenceReport) -> list[str]:
            tokenizer, skip = served.tokenizer, body.skip_special_tokens
            return [tokenizer.decode(ids, skip_special_tokens=skip) for ids in part]

        return Question([" " * len(ids) for ids in rows], Function(texts, len), rows, as_they_are, "request")

    return routes


def as_they_are(results: Any, ticket: Ticket) -> Any:
    """The results of a verb as an answer."""
    return results


def inputs_of(given: str | list[int] | list[str | list[int]], field: str = "inputs") -> list[TextOrIds]:
    """The inputs as a list.

    Args:
        field: where a client has written them, for errors.

    Raises:
        EmptyInput: no input, or an empty one.
    """
    is_one = isinstance(given, str) or (given and all(isinstance(one, int) for one in given))
    inputs: list[Any] = [given] if is_one else list(given)
    refuse_empty(inputs, field, is_one=bool(is_one))
    return [one if isinstance(one, str) else tuple(one) for one in inputs]


def vectors_of(
    verb: ModelVerb,
    inputs: Sequence[TextOrIds],
    finish: Callable[[Any, Ticket], Any] = as_they_are,
) -> Question:
    """Vectors, or what ``finish`` makes of them.

    Raises:
        InvalidRequest: a text that is far too long.
    """
    texts = [one if isinstance(one, str) else " " * len(one) for one in inputs]  # to count characters
    if verb.on_long == "error":
        _refuse_endless(verb.served, texts)
    return Question(texts, verb, inputs, finish, "embed")


def cosines(vectors: Sequence[np.ndarray], ticket: Ticket) -> np.ndarray:
    """(N - 1,) cosines of the first normalized vector with the others."""
    matrix = np.stack(list(vectors))
    return matrix[1:] @ matrix[0]


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
