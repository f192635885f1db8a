"""POST / and POST /models/{name}: requests of `huggingface_hub.InferenceClient`, by kind of model.

Each is a request of our own route for the kind, with the hub's defaults, and its answer with the hub's names. For other
kinds, the response holds the predictions of the task.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bertkit.inference import FilledMask
from bertkit.inference.zero_shot import InferenceLabels
from bertkit.serving.bodies import Dimensions, ModelBody, OneOrMoreBody, PromptBody, TextsBody
from bertkit.serving.embedding_api import EmbedBody, Sentences, cosines, embed
from bertkit.serving.generate_api import GenerateBody, generate
from bertkit.serving.refusals import InvalidRequest
from bertkit.serving.rerank_api import RerankBody, rerank
from bertkit.serving.routes import Body, Routes, checked
from bertkit.serving.served_models import (
    ANSWERING,
    CLASSIFICATION,
    FEATURES,
    FILL_MASK,
    RERANKING,
    TAGGING,
    ServedGenerator,
)
from bertkit.serving.service import Question, Service
from bertkit.serving.task_api import (
    AnswerBody,
    ClassifyBody,
    EntitiesBody,
    FillBody,
    answer,
    classify,
    entities,
    filled,
    labels,
)
from bertkit.serving.verbs import prediction

_ENTITY = {"entity_group": "label", "score": "probability", "word": "text", "start": "start", "end": "end"}
_ANSWER = {"answer": "text", "score": "probability", "start": "start", "end": "end"}
"""The hub's names of fields, with ours."""

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
    dimensions: Dimensions = None
    truncate: Annotated[bool | None, Field(description="Truncate texts that are too long, or refuse them.")] = None
    stream: Annotated[bool | None, Field(description="Only false: an answer is sent when it is complete.")] = None
    truncation_direction: Annotated[str | None, Field(description="Only right: the end of a text is cut.")] = None


class _Comparison(PromptBody):
    inputs: Sentences
    normalize: bool = True  # cosines are those of normalized vectors in any case
    dimensions: Dimensions = None


class _Labels(TextsBody, OneOrMoreBody):
    top_k: _Count = 1_000
    function_to_apply: str | None = None


class _Entities(EntitiesBody):
    aggregation_strategy: Literal["simple"] = "simple"


class _Answers(AnswerBody):
    top_k: _Count = 1
    handle_impossible_answer: bool = False
    align_to_words: Literal[True] = True


class _Items(ModelBody):
    inputs: Any


def _labels(service: Service, body: _Labels) -> Question:
    served = body.chosen(service, [CLASSIFICATION], "a classifier")
    function, own = body.function_to_apply, served.task.probability_function
    if function not in (None, "none", own):
        raise InvalidRequest(f"function_to_apply is {function!r:.40}: expected none" + (f" or {own}" if own else ""))
    return labels(served, body, body.texts, is_one=False, as_logits=function == "none", top_k=body.top_k)


def _zero_shot(service: Service, body: ClassifyBody) -> Question:
    served = body.chosen(service, [CLASSIFICATION], "a classifier")
    if InferenceLabels.of(served.task.label_names or ()) is None:
        raise InvalidRequest(f"candidate_labels: {served.name} has no label named entailment")
    return classify(service, body)


def _entities(service: Service, body: _Entities) -> Question:
    return entities(service, body, shape=lambda entity: _renamed(vars(entity), _ENTITY))


def _answers(service: Service, body: _Answers) -> Question:
    def rows(made: dict[str, Any]) -> Any:
        rows = [_renamed(each, _ANSWER) for each in made["candidates"]]
        if body.handle_impossible_answer or not rows:
            rows.append({"answer": "", "score": made["no_answer_probability"], "start": 0, "end": 0})
            rows.sort(key=lambda row: -row["score"])
        return rows[0] if body.top_k == 1 else rows[: body.top_k]

    return _reshaped(answer(service, body), rows)


def _masks(service: Service, body: FillBody) -> Question:
    text = body.inputs

    def candidates(mask: FilledMask) -> list[dict[str, Any]]:
        before, after = text[: mask.offsets[0]], text[mask.offsets[1] :]
        return [
            {
                "score": each.score,
                "token": each.token_id,
                "token_str": each.token,
                "sequence": before + each.token + after,
            }
            for each in mask.candidates
        ]

    def shape(masks: list[FilledMask]) -> Any:
        rows = list(map(candidates, masks))
        return rows[0] if len(rows) == 1 else rows

    return filled(service, body, shape, 80 + len(text))


def _predictions(service: Service, body: _Items) -> Question:
    items = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    verb = prediction(body.chosen(service, None, "an encoder"))
    return Question(verb, items, lambda results, ticket: list(map(asdict, results)), texts=list(map(str, items)))


_BY_KIND: dict[str, tuple[type[ModelBody], Callable[[Service, Any], Question]]] = {
    FEATURES: (EmbedBody, embed),
    "comparison": (_Comparison, lambda service, body: cosines(service, body, body.inputs, body.dimensions)),
    CLASSIFICATION: (_Labels, _labels),
    "zero-shot": (ClassifyBody, _zero_shot),
    TAGGING: (_Entities, _entities),
    ANSWERING: (_Answers, _answers),
    FILL_MASK: (FillBody, _masks),
    RERANKING: (RerankBody, rerank),
}

routes = Routes("Hugging Face")


@routes.post("/")
def first_model(service: Service, body: Envelope) -> Question:
    """Run the first model."""
    return named_model(service, service.models.first.name, body)


@routes.post("/models/{name}")
def named_model(service: Service, name: str, body: Envelope) -> Question:
    """Run a model by name."""
    served, _ = service.models.named(name)
    parameters = body.parameters or {}
    if isinstance(served, ServedGenerator):
        own = parameters.get("generate_parameters")  # where InferenceClient puts some of them
        if not isinstance(own, dict | None):
            raise InvalidRequest(f"generate_parameters is {own!r:.40}: expected an object")
        both = {key: value for key, value in parameters.items() if key != "generate_parameters"} | (own or {})
        given = {"inputs": body.inputs, "parameters": both, "stream": body.stream, "model": name}
        return _reshaped(generate(service, checked(GenerateBody, given)), _as_hub_texts)
    given = {key: value for key, value in [*body, *parameters.items()] if value is not None and key != "parameters"}
    kind = served.kind
    if kind == FEATURES and isinstance(body.inputs, dict):
        kind = "comparison"
    elif kind == CLASSIFICATION and "candidate_labels" in given:
        kind = "zero-shot"
    body_type, endpoint = _BY_KIND.get(kind, (_Items, _predictions))
    if "inputs" not in body_type.model_fields and isinstance(body.inputs, dict):
        given = given.pop("inputs") | given  # its fields are those of the body
    return endpoint(service, checked(body_type, given | {"model": name}))


def _reshaped(question: Question, shape: Callable[[Any], Any]) -> Question:
    """A question whose answer has the form of the hub."""
    return replace(question, finish=lambda results, ticket: shape(question.answer(results, ticket)), is_one=False)


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: fields[ours] for name, ours in names.items()}


def _as_hub_texts(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [made | {"translation_text": made["generated_text"], "summary_text": made["generated_text"]}]
