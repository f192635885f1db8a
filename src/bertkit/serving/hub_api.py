"""POST / and POST /models/{name}: requests of `huggingface_hub.InferenceClient`, by kind of model.

Each kind has a body, which is that of our own route where there is one. For other kinds, the response holds the
predictions of the task.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bertkit.inference import FilledMask
from bertkit.inference.zero_shot import InferenceLabels
from bertkit.serving.bodies import PromptBody, Texts, TextsBody
from bertkit.serving.embedding_api import EmbedBody, Sentences, cosines, inputs_of, vectors_of
from bertkit.serving.generate_api import GenerateBody, generated
from bertkit.serving.refusals import InvalidRequest, refuse_empty
from bertkit.serving.rerank_api import RerankBody, ranking
from bertkit.serving.routes import Body, Routes, checked
from bertkit.serving.served_models import (
    ANSWERING,
    CLASSIFICATION,
    FEATURES,
    FILL_MASK,
    RERANKING,
    TAGGING,
    ServedGenerator,
    ServedModel,
    role_of,
)
from bertkit.serving.service import Question, Service
from bertkit.serving.task_api import (
    AnswerBody,
    ClassifyBody,
    EntitiesBody,
    FillBody,
    answer,
    entities,
    filled,
    labels_as_json,
    zero_shot,
)
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import Embedding, Prediction

_Ask = Callable[[Any, Any], Question]
_Count = Annotated[int, Field(ge=1, le=1_000)]


class Envelope(Body):
    """Body of POST / and POST /models/{name}; options are in `parameters` or next to `inputs`."""

    ignored: ClassVar[frozenset[str]] = frozenset({"options"})

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


class _Comparison(PromptBody):
    inputs: Sentences
    normalize: bool = True  # cosines are those of normalized vectors in any case
    dimensions: Annotated[int | None, Field(ge=1)] = None


class _Labels(TextsBody):
    inputs: Texts
    top_k: _Count = 1_000
    function_to_apply: str | None = None


class _Entities(EntitiesBody):
    aggregation_strategy: Literal["simple"] = "simple"


class _Answers(AnswerBody):
    top_k: _Count = 1
    handle_impossible_answer: bool = False
    align_to_words: Literal[True] = True


class _Items(Body):
    inputs: Any


def _features(served: ServedModel, body: EmbedBody | _Comparison) -> Question:
    prompt_name = served.prompt_of(role_of(body.input_type), body.prompt_name)
    verb = Embedding(served, body.policy, body.normalize, body.dimensions, prompt_name)
    if isinstance(body, EmbedBody):
        return vectors_of(verb, inputs_of(body.inputs))
    return vectors_of(replace(verb, normalize=True), body.inputs.texts, cosines)


def _labels(served: ServedModel, body: _Labels) -> Question:
    function, own = body.function_to_apply, served.task.probability_function
    if function not in (None, "none", own):
        raise InvalidRequest(f"function_to_apply is {function!r:.40}: expected none" + (f" or {own}" if own else ""))
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    refuse_empty(texts, "inputs", is_one=isinstance(body.inputs, str))
    verb = Prediction(served, body.policy, as_logits=function == "none")

    def labels(results: list[Any], ticket: Ticket) -> Any:
        return [row[: body.top_k] for row in labels_as_json(verb, results)]

    return Question(texts, verb, texts, labels)


def _zero_shot(served: ServedModel, body: ClassifyBody) -> Question:
    columns = InferenceLabels.of(served.task.label_names or ())
    if columns is None:
        raise InvalidRequest(f"candidate_labels: {served.name} has no label named entailment")
    return zero_shot(served, columns, body)


def _entities(served: ServedModel, body: _Entities) -> Question:
    def as_hub(entity: Any) -> dict[str, Any]:
        return {
            "entity_group": entity.label,
            "score": entity.probability,
            "word": entity.text,
            "start": entity.start,
            "end": entity.end,
        }

    return entities(served, body, as_hub)


def _answers(served: ServedModel, body: _Answers) -> Question:
    def answers(prediction: dict[str, Any]) -> Any:
        rows = [
            {"answer": each["text"], "score": each["probability"], "start": each["start"], "end": each["end"]}
            for each in prediction["candidates"]
        ]
        if body.handle_impossible_answer or not rows:
            rows.append({"answer": "", "score": prediction["no_answer_probability"], "start": 0, "end": 0})
            rows.sort(key=lambda row: -row["score"])
        return rows[0] if body.top_k == 1 else rows[: body.top_k]

    return answer(served, (body.question, body.context), answers)


def _masks(served: ServedModel, body: FillBody) -> Question:
    text = body.inputs

    def candidates(mask: FilledMask) -> Any:
        return [
            {
                "score": each.score,
                "token": each.token_id,
                "token_str": each.token,
                "sequence": text[: mask.offsets[0]] + each.token + text[mask.offsets[1] :],
            }
            for each in mask.candidates
        ]

    def shape(masks: list[FilledMask]) -> Any:
        rows = list(map(candidates, masks))
        return rows[0] if len(rows) == 1 else rows

    return filled(served, body, shape, 80 + len(text))


def _as_they_are(served: ServedModel, body: _Items) -> Question:
    items = body.inputs if isinstance(body.inputs, list) else [body.inputs]

    def predictions(results: list[Any], ticket: Ticket) -> Any:
        return list(map(asdict, results))

    return Question(list(map(str, items)), Prediction(served), items, predictions)


_BY_KIND: dict[str, tuple[type[Body], _Ask]] = {
    FEATURES: (EmbedBody, _features),
    CLASSIFICATION: (_Labels, _labels),
    "zero-shot": (ClassifyBody, _zero_shot),
    TAGGING: (_Entities, _entities),
    ANSWERING: (_Answers, _answers),
    FILL_MASK: (FillBody, _masks),
    RERANKING: (RerankBody, ranking),
}


def hub_routes(service: Service) -> Routes:
    """The routes, for an app."""
    routes = Routes("Hugging Face")

    @routes.post("/")
    def first_model(body: Envelope) -> Question:
        """Run the first model."""
        return _asked(service, service.models.first, None, body)

    @routes.post("/models/{name}")
    def named_model(name: str, body: Envelope) -> Question:
        """Run a model by name."""
        return _asked(service, *service.models.named(name), body)

    return routes


def _asked(service: Service, served: Any, role: str | None, envelope: Envelope) -> Question:
    parameters = envelope.parameters or {}
    if isinstance(served, ServedGenerator):
        own = parameters.get("generate_parameters")  # where InferenceClient puts some of them
        if not isinstance(own, dict | None):
            raise InvalidRequest(f"generate_parameters is {own!r:.40}: expected an object")
        both = {name: value for name, value in parameters.items() if name != "generate_parameters"} | (own or {})
        given = {"inputs": envelope.inputs, "parameters": both, "stream": envelope.stream}
        return generated(served, checked(GenerateBody, given), _as_hub_texts)
    given = {name: value for name, value in [*envelope, *parameters.items()] if value is not None}
    given.pop("parameters", None)
    is_zero_shot = served.kind == CLASSIFICATION and "candidate_labels" in given
    body_type, ask = _BY_KIND.get("zero-shot" if is_zero_shot else served.kind, (_Items, _as_they_are))
    if "inputs" not in body_type.model_fields and isinstance(envelope.inputs, dict):
        given = given.pop("inputs") | given  # its fields are those of the body
    if served.kind == FEATURES:
        body_type = _Comparison if isinstance(envelope.inputs, dict) else EmbedBody
        given = {"input_type": role} | given
    return ask(served, checked(body_type, given))


def _as_hub_texts(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [answer | {"translation_text": answer["generated_text"], "summary_text": answer["generated_text"]}]
