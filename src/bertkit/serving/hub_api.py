"""POST / and POST /models/{name}: requests of `huggingface_hub.InferenceClient`, by kind of model.

For other kinds, the response holds the predictions of the task.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import Field, TypeAdapter, ValidationError

from bertkit.inference.zero_shot import InferenceLabels
from bertkit.serving.embedding import Embedding, Input, cosines, embedded, inputs_of
from bertkit.serving.generate_api import GenerateBody, generated
from bertkit.serving.json_route import Body, JsonRoute
from bertkit.serving.prediction import (
    Prediction,
    as_json,
    entities_as_json,
    fill_mask,
    first_logits,
    labels_as_json,
    predict,
)
from bertkit.serving.refusals import EmptyInput, InvalidRequest, refuse_empty
from bertkit.serving.served_models import (
    ANSWERING,
    CLASSIFICATION,
    FEATURES,
    FILL_MASK,
    RERANKING,
    TAGGING,
    Served,
    ServedGenerator,
    role_of,
)
from bertkit.serving.service import Service
from bertkit.serving.task_api import ClassifyBody, zero_shot
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer.layout import OnLong


class Envelope(Body):
    """Body of POST / and POST /models/{name}; options are in `parameters` or next to `inputs`."""

    inputs: Annotated[Any, Field(description="A text, or other inputs of the kind of model.")]
    parameters: Annotated[
        dict[str, Any] | None, Field(description="Parameters of the kind of model, as on the hub.")
    ] = None
    normalize: Annotated[bool | None, Field(description="Scale vectors to length 1.")] = None
    prompt_name: Annotated[str | None, Field(description="One of the model's prompts.")] = None
    dimensions: Annotated[int | None, Field(ge=1, description="Keep the first N components.")] = None
    truncate: Annotated[bool | None, Field(description="Truncate texts that are too long, or refuse them.")] = None
    stream: Annotated[bool | None, Field(description="Only false: an answer is sent when it is complete.")] = None
    truncation_direction: Annotated[str | None, Field(description="Only right: the end of a text is cut.")] = None


_NOT_OFFERED: dict[str, tuple[Any, ...]] = {
    "truncation_direction": (None, "right", "Right"), "targets": (None,), "aggregation_strategy": (None, "simple"),
    "ignore_labels": (None,), "stride": (None,), "max_answer_len": (None,), "align_to_words": (None, True),
    "on_long": (None,), "raw_scores": (None, False), "return_text": (None, False),
}  # fmt: skip
"""Options of InferenceClient and of other routes that are not supported here, with their values that have no effect."""


@dataclass(frozen=True)
class _Call:
    """One request to a model."""

    service: Service
    request: Request
    served: Any  # ServedModel, or ServedGenerator
    role: str | None
    inputs: Any
    options: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """The inputs as texts.

        Raises:
            InvalidRequest: they are not texts.
        """
        texts = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidRequest(
                f"inputs: {self.served.name} is for {self.served.kind}: expected a text or a list of texts"
            )
        refuse_empty(texts, "inputs", is_one=self.is_one)
        return texts

    @property
    def is_one(self) -> bool:
        return isinstance(self.inputs, str)

    def integer(self, name: str, default: int, *, most: int = 1_000) -> int:
        """An option that is an integer from 1 to ``most``.

        Raises:
            InvalidRequest: another value.
        """
        value = self.options.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidRequest(f"{name} is {value!r:.40}: expected an integer from 1 to {most:,}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """An option that is true or false.

        Raises:
            InvalidRequest: another value.
        """
        value = self.options.get(name)
        if value is not None and not isinstance(value, bool):
            raise InvalidRequest(f"{name} is {value!r:.40}: expected true or false")
        return default if value is None else value

    @property
    def on_long(self) -> OnLong:
        """The policy for texts that are too long."""
        return "truncate" if self.flag("truncate", True) else "error"

    def field(self, name: str, kind: type = str) -> Any:
        """A member of an inputs object.

        Raises:
            InvalidRequest: it is missing or of another type.
        """
        value = self.inputs.get(name) if isinstance(self.inputs, dict) else None
        if not isinstance(value, kind) or not value:
            raise InvalidRequest(f"inputs.{name}: {self.served.name} is for {self.served.kind}: it is required")
        return value


async def _features(call: _Call) -> Response:
    served, options, service = call.served, call.options, call.service
    prompt_name = served.prompt_of(
        role_of(_string(options, "input_type")) or call.role, _string(options, "prompt_name")
    )
    dimensions = None if options.get("dimensions") is None else call.integer("dimensions", 1, most=1_000_000)
    embedding = Embedding(served, call.flag("normalize", True), dimensions, prompt_name, call.on_long)
    if isinstance(call.inputs, dict):
        texts = [call.field("source_sentence"), *call.field("sentences", list)]
        if not all(isinstance(text, str) and text for text in texts):
            raise InvalidRequest("inputs.sentences: expected a list of texts, none of them empty")
        return await embedded(service, call.request, replace(embedding, normalize=True), texts, cosines)
    try:
        inputs = inputs_of(_INPUT.validate_python(call.inputs, strict=True))
    except ValueError as error:
        if isinstance(error, InvalidRequest | EmptyInput):
            raise
        raise InvalidRequest("inputs: expected a text or a list of texts") from None
    return await embedded(service, call.request, embedding, inputs)


async def _classes(call: _Call) -> Response:
    if "candidate_labels" in call.options:
        return await _zero_shot(call)
    function, own = call.options.get("function_to_apply"), call.served.task.probability_function
    if function not in (None, "none", own):
        raise InvalidRequest(f"function_to_apply is {function!r:.40}: expected none" + (f" or {own}" if own else ""))
    texts, top_k = call.texts, call.integer("top_k", 1_000)
    verb = Prediction(call.served, call.on_long, as_logits=function == "none")

    def labels(results: list[Any], ticket: Ticket) -> Any:
        return [row[:top_k] for row in labels_as_json(verb, results)]

    return await verb.answer(call.service, call.request, texts, texts, labels)


async def _zero_shot(call: _Call) -> Response:
    columns = InferenceLabels.of(call.served.task.label_names or ())
    if columns is None:
        raise InvalidRequest(f"candidate_labels: {call.served.name} has no label named entailment")
    try:
        body = ClassifyBody.model_validate(call.options | {"inputs": call.inputs})
    except ValidationError as error:
        raise _as_refusal(error) from None
    return await zero_shot(call.service, call.served, columns, body, call.request, call.on_long)


async def _entities(call: _Call) -> Response:
    texts = call.texts

    def entities(predictions: list[Any], ticket: Ticket) -> Any:
        rows = [list(map(_as_hub, row)) for row in entities_as_json(call.service, predictions, ticket)]
        return rows[0] if call.is_one else rows

    return await Prediction(call.served).answer(call.service, call.request, texts, texts, entities)


def _as_hub(entity: dict[str, Any]) -> dict[str, Any]:
    return {
        "entity_group": entity["label"],
        "score": entity["probability"],
        "word": entity["text"],
        "start": entity["start"],
        "end": entity["end"],
    }


async def _answers(call: _Call) -> Response:
    pair, top_k = (call.field("question"), call.field("context")), call.integer("top_k", 1)
    may_be_none = call.flag("handle_impossible_answer", False)

    def answers(predictions: list[Any], ticket: Ticket) -> Any:
        prediction = as_json(predictions[0])
        rows = [
            {"answer": each["text"], "score": each["probability"], "start": each["start"], "end": each["end"]}
            for each in prediction["candidates"]
        ]
        if may_be_none or not rows:
            rows.append({"answer": "", "score": prediction["no_answer_probability"], "start": 0, "end": 0})
            rows.sort(key=lambda row: -row["score"])
        return rows[0] if top_k == 1 else rows[:top_k]

    return await Prediction(call.served).answer(call.service, call.request, pair, [pair], answers)


async def _masks(call: _Call) -> Response:
    (text, *others), top_k = call.texts, call.integer("top_k", 5)
    if others:
        raise InvalidRequest("inputs: expected one text")

    def work(ticket: Ticket) -> Any:
        size = 80 + len(text)  # of a candidate, with the text that it fills
        filled = fill_mask(
            call.service, call.served, text, ticket, top_k=top_k, on_long="window", bytes_per_candidate=size
        )
        rows = [
            [
                {
                    "score": each.score,
                    "token": each.token_id,
                    "token_str": each.token,
                    "sequence": text[: mask.offsets[0]] + each.token + text[mask.offsets[1] :],
                }
                for each in mask.candidates
            ]
            for mask in filled
        ]
        return rows[0] if len(rows) == 1 else rows

    return await call.service.answer(call.request, [text], work, verb="predict")


async def _ranking(call: _Call) -> Response:
    query, texts = call.field("query"), call.field("texts", list)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("inputs.texts: expected a list of texts")

    def ranked(rows: list[np.ndarray], ticket: Ticket) -> Any:
        scores = first_logits(rows)
        return [{"index": index, "score": scores[index]} for index in np.argsort(-scores, kind="stable").tolist()]

    verb, pairs = Prediction(call.served, call.on_long, as_logits=True), [(query, text) for text in texts]
    return await verb.answer(call.service, call.request, [query, *texts], pairs, ranked)


async def _as_they_are(call: _Call) -> Response:
    items = call.inputs if isinstance(call.inputs, list) else [call.inputs]

    def work(ticket: Ticket) -> Any:
        return list(map(as_json, predict(call.served, items, ticket)))

    return await call.service.answer(call.request, [str(item) for item in items], work, verb="predict")


_BY_KIND: dict[str, Callable[[_Call], Awaitable[Response]]] = {
    FEATURES: _features,
    CLASSIFICATION: _classes,
    TAGGING: _entities,
    ANSWERING: _answers,
    FILL_MASK: _masks,
    RERANKING: _ranking,
}

_INPUT: TypeAdapter[Any] = TypeAdapter(Input)


def hub_routes(service: Service) -> APIRouter:
    """The routes, for an app."""
    router = APIRouter(route_class=JsonRoute, tags=["Hugging Face"])

    @router.post("/")
    async def first_model(body: Envelope, request: Request) -> Response:
        """Run the first model."""
        return await _answered(service, service.models.first, None, body, request)

    @router.post("/models/{name:path}")
    async def named_model(name: str, body: Envelope, request: Request) -> Response:
        """Run a model by name."""
        served, role = service.models.named(name)
        return await _answered(service, served, role, body, request)

    return router


async def _answered(service: Service, served: Served, role: str | None, body: Envelope, request: Request) -> Response:
    if isinstance(served, ServedGenerator):
        return await generated(service, served, _generate_body(body), request, _as_hub_texts)
    outside = {name: value for name, value in body if name not in ("inputs", "parameters")}
    call = _Call(service, request, served, role, body.inputs, _without_nulls(outside) | _without_nulls(body.parameters))
    for name, neutral in _NOT_OFFERED.items():
        if (value := call.options.get(name)) not in neutral:
            raise InvalidRequest(f"{name} is {value!r:.40}: not supported by this server, omit it")
    return await _BY_KIND.get(served.kind, _as_they_are)(call)


def _as_hub_texts(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [answer | {"translation_text": answer["generated_text"], "summary_text": answer["generated_text"]}]


def _generate_body(body: Envelope) -> GenerateBody:
    """The body for /generate; InferenceClient puts some of its parameters into an object `generate_parameters`."""
    parameters = _without_nulls(body.parameters)
    own = parameters.pop("generate_parameters", None)
    if not isinstance(own, dict | None):
        raise InvalidRequest(f"generate_parameters is {own!r:.40}: expected an object")
    try:
        return GenerateBody.model_validate(
            {"inputs": body.inputs, "parameters": parameters | _without_nulls(own), "stream": body.stream or False}
        )
    except ValidationError as error:
        raise _as_refusal(error) from None


def _without_nulls(options: dict[str, Any] | None) -> dict[str, Any]:
    """The options with a value: null means that an option is absent."""
    return {name: value for name, value in (options or {}).items() if value is not None}


def _as_refusal(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_input=False)[0]
    return InvalidRequest(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _string(options: dict[str, Any], name: str) -> str | None:
    value = options.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{name} is {value!r:.40}: expected a text")
    return value
