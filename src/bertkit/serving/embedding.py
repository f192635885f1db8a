"""Embedding for requests: checks and counts shared by all routes with vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from fastapi import Request, Response

from bertkit.inference import InferenceReport, Runner, embed_sparse
from bertkit.serving.refusals import ComputationFailed, InvalidRequest, refuse_empty
from bertkit.serving.served_models import Served, ServedModel
from bertkit.serving.service import Service
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer.layout import OnLong

TokenIds = list[int]
Input = str | TokenIds | list[str | TokenIds]
"""A text or the token ids of one, or several: a flat list of ids is one input."""

Vectors = Sequence[np.ndarray] | np.ndarray

_BYTES_PER_NUMBER, _BYTES_PER_WEIGHT = 12, 40
"""About the JSON of a number of a vector, and of a weight with its index."""


def inputs_of(given: Input, field: str = "inputs") -> list[str | TokenIds]:
    """The inputs as a list.

    Args:
        field: where a client has written them, for errors.

    Raises:
        EmptyInput: no input, or an empty one.
    """
    is_one = isinstance(given, str) or (given and all(isinstance(one, int) for one in given))
    inputs: list[Any] = [given] if is_one else list(given)
    refuse_empty(inputs, field, is_one=bool(is_one))
    return inputs


def text_of_ids(served: ServedModel, ids: Sequence[int]) -> str:
    """Decode token ids to their text, with or without special tokens.

    Raises:
        InvalidRequest: the model's tokenizer encodes the text differently: probably the ids are from another tokenizer.
    """
    tokenizer = served.tokenizer
    bare, has_first = list(ids), tokenizer.engine.template.has_first
    if bare[-1] == tokenizer.sep_id and (bare[0] == tokenizer.cls_id or not has_first):
        bare = bare[has_first:-1]
    if all(0 <= token_id < len(tokenizer.vocabulary) for token_id in bare):
        text = tokenizer.decode(bare)
        if tokenizer.plain_ids([text])[0].tolist() == bare:
            return text
    raise InvalidRequest(
        f"these token ids are not those of the tokenizer of {served.name} for any text: send the text itself"
    )


@dataclass(frozen=True)
class Embedding:
    """`Model.embed` with options; see `text_jobs.Verb`."""

    served: ServedModel
    normalize: bool = True
    dimensions: int | None = None
    prompt_name: str | None = None
    on_long: OnLong = "truncate"

    @property
    def runner(self) -> Runner:
        return self.served.model._runner

    @property
    def most_tokens(self) -> int | None:
        """See `Verb.most_tokens`."""
        return None if self.on_long == "window" else self.served.max_length

    def compute(self, items: Sequence[str], ticket: Ticket) -> np.ndarray:
        """(N, E) float32.

        Raises:
            BertkitError: an option that the model does not support, or a text that is too long under
                ``on_long="error"``.
        """
        report = InferenceReport()
        vectors = self.served.model.embed(
            items,
            report=report,
            normalize=self.normalize,
            dimensions=self.dimensions,
            prompt_name=self.prompt_name,
            on_long=self.on_long,
            progress=False,
        )
        ticket.count(report.num_texts_cut, report)
        return vectors


async def embedded(
    service: Service,
    request: Request,
    embedding: Embedding,
    inputs: Sequence[str | TokenIds],
    finish: Callable[[Vectors, Ticket], Any] = lambda vectors, ticket: vectors,
) -> Response:
    """Answer with vectors, or what ``finish`` makes of them.

    Raises:
        ComputationFailed: a vector is not finite.
        BertkitError: as `Embedding.compute`, or token ids of another tokenizer.
    """

    def finish_finite(vectors: Vectors, ticket: Ticket) -> Any:
        return finish(finite(vectors), ticket)

    served, texts = embedding.served, [one for one in inputs if isinstance(one, str)]
    if embedding.on_long == "error":
        refuse_endless(served, texts)
    if len(texts) == len(inputs):
        return await service.compute(request, texts, embedding, texts, finish_finite, "embed")

    def work(ticket: Ticket) -> Any:
        decoded = [one if isinstance(one, str) else text_of_ids(served, one) for one in inputs]
        return finish_finite(embedding.compute(decoded, ticket), ticket)

    return await service.answer(request, list(map(text_like, inputs)), work, verb="embed")


def finite(vectors: Vectors) -> Vectors:
    """The vectors.

    Raises:
        ComputationFailed: one of them is not finite.
    """
    if not np.isfinite(vectors).all():
        raise ComputationFailed("Backend error: a vector is not finite")
    return vectors


def cosines(vectors: Vectors, ticket: Ticket) -> np.ndarray:
    """(N - 1,) cosines of the first normalized vector with the others."""
    matrix = np.stack(list(vectors))
    return matrix[1:] @ matrix[0]


def text_like(given: str | TokenIds) -> str:
    """A string with the size of the input, for counting characters."""
    return given if isinstance(given, str) else " " * len(given)


def token_vectors(
    service: Service,
    served: ServedModel,
    texts: Sequence[str],
    ticket: Ticket,
    *,
    prompt_name: str | None = None,
    on_long: OnLong = "truncate",
) -> list[np.ndarray]:
    """Last hidden states of the tokens of each text, (n, D) float32; windows are concatenated.

    Raises:
        InvalidRequest, Overloaded: an answer that is too large; see `Service.reserve`.
        ComputationFailed: a number is not finite.
    """
    model = served.model
    prompt = served.prompts.get(prompt_name or model.sentence_settings.default_prompt_name or "", "")
    encodings = model.tokenizer.encode_batch(
        [prompt + text for text in texts], max_length=served.max_length, on_long=on_long, with_offsets=False
    )
    report = InferenceReport()
    report.add(encodings.after_prompts(model.tokenizer.num_known(prompt)) if prompt else encodings, len(texts))
    ticket.count(report.num_texts_cut, report)
    service.reserve(ticket, len(encodings.input_ids) * model.config.hidden_size * _BYTES_PER_NUMBER)
    rows = model.last_hidden_states(encodings)
    if not np.isfinite(rows).all():
        raise ComputationFailed("Backend error: a vector is not finite")
    ends = encodings.cu_seqlens[1:][np.flatnonzero(np.diff(encodings.text_index, append=len(texts)))]
    return np.split(rows, ends[:-1])


def sparse_vectors(
    service: Service,
    served: ServedModel,
    texts: Sequence[str],
    ticket: Ticket,
    *,
    as_queries: bool,
    prompt_name: str | None = None,
    on_long: OnLong = "truncate",
) -> list[orjson.Fragment]:
    """Index and value of each nonzero weight of each text, as JSON.

    Raises:
        BertkitError: a text that is too long under ``on_long="error"``.
        InvalidRequest, Overloaded: an answer that is too large; see `Service.reserve`.
        ComputationFailed: a weight is not finite.
    """
    if on_long == "error":
        refuse_endless(served, texts)
    prompt, report = served.prompts.get(prompt_name or "", ""), InferenceReport()
    model = served.model
    model.require_trained("masked_lm")
    options = {"as_queries": as_queries, "on_long": on_long, "prompt": prompt, "report": report}
    vectors = embed_sparse(model._runner, model.checkpoint.sparse, texts, **options)
    ticket.count(report.num_texts_cut, report)
    service.reserve(ticket, len(vectors.weights) * _BYTES_PER_WEIGHT)
    if not np.isfinite(vectors.weights).all():
        raise ComputationFailed("Backend error: a weight is not finite")
    ids, weights = (np.split(values, vectors.starts[1:-1]) for values in (vectors.token_ids, vectors.weights))
    return [
        as_fragment([{"index": index, "value": value} for index, value in zip(*parts, strict=True)])
        for parts in ([part.tolist() for part in both] for both in zip(ids, weights, strict=True))
    ]


def as_fragment(part: Any) -> orjson.Fragment:
    """A part of an answer as JSON: the objects of Python take ten times the memory."""
    return orjson.Fragment(orjson.dumps(part))


def refuse_endless(served: Served, texts: Sequence[str]) -> None:
    """Reject texts that are too long by their number of characters, before tokenization."""
    most = served.most_characters
    if longest := next((len(text) for text in texts if len(text) > most), None):
        raise InvalidRequest(f"Input validation error: `inputs` must have at most {most} characters. Given: {longest}")
