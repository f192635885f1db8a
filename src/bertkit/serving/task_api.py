"""Routes of fine-tuned models: /predict as in text-embeddings-inference, and /entities, /answer, /fill, /classify,
which it lacks."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import Field

from bertkit.inference.zero_shot import TEMPLATE, InferenceLabels, hypotheses
from bertkit.serving.bodies import ACCEPTS_TEXTS, ModelBody, TextsBody
from bertkit.serving.json_route import JsonRoute, accepts
from bertkit.serving.prediction import Prediction, as_json, entities_as_json, fill_mask, labels_as_json
from bertkit.serving.refusals import InvalidRequest, WrongModelKind, refuse_empty
from bertkit.serving.served_models import ANSWERING, CLASSIFICATION, FILL_MASK, TAGGING, ServedModel
from bertkit.serving.service import Service
from bertkit.serving.ticket import Ticket
from bertkit.tokenizer.layout import OnLong

_MOST_CHARACTERS = 1_000_000
"""Maximum number of characters of a template filled with each label: a small body could ask for gigabytes."""

Pair = Annotated[list[str], Field(min_length=1, max_length=2)]


class PredictBody(TextsBody):
    """Body of /predict."""

    inputs: Annotated[
        str | list[str] | list[Pair],
        accepts("a text, a pair of texts, or a list of lists of one text or two"),
        Field(description="A text; a pair of texts; or a list of lists of one text or two."),
    ]
    raw_scores: Annotated[bool, Field(description="Return logits instead of probabilities.")] = False


class EntitiesBody(TextsBody):
    """Body of /entities."""

    inputs: Annotated[str | list[str], ACCEPTS_TEXTS, Field(description="A text of any length, or several.")]


class AnswerBody(ModelBody):
    """Body of /answer."""

    question: Annotated[str, Field(description="What the context is asked.")]
    context: Annotated[str, Field(description="A text of any length.")]
    top_k: Annotated[int, Field(ge=1, le=1_000, description="Number of candidates to return.")] = 5


class FillBody(ModelBody):
    """Body of /fill."""

    inputs: Annotated[str, Field(description="A text with [MASK] where tokens are missing.")]
    top_k: Annotated[int, Field(ge=1, le=1_000, description="Number of tokens to return for each.")] = 5
    on_long: Annotated[OnLong, Field(description="What to do with a text that is too long.")] = "window"


class ClassifyBody(ModelBody):
    """Body of /classify."""

    inputs: Annotated[str, Field(description="A text.")]
    candidate_labels: Annotated[
        list[str], Field(min_length=1, max_length=1_000, description="Names of labels, in words of the language.")
    ]
    hypothesis_template: Annotated[str, Field(description="A sentence with {} for a label.")] = TEMPLATE
    multi_label: Annotated[bool, Field(description="Score each label independently.")] = False


def task_routes(service: Service) -> APIRouter:
    """The routes, for an app."""
    router = APIRouter(route_class=JsonRoute, tags=["tasks"])

    @router.post("/predict")
    async def predict_labels(body: PredictBody, request: Request) -> Response:
        """All labels of a text or pair with probabilities, best first; a list for each of several inputs."""
        served, _ = service.models.choose(body.model, [CLASSIFICATION], "a classifier")
        items, is_one = _items(body.inputs)
        verb = Prediction(served, body.policy, as_logits=body.raw_scores)

        def labels(results: list[Any], ticket: Ticket) -> Any:
            rows = labels_as_json(verb, results)
            return rows[0] if is_one else rows

        return await verb.answer(service, request, ["".join(item) for item in items], items, labels)

    @router.post("/entities")
    async def find_entities(body: EntitiesBody, request: Request) -> Response:
        """The entities of a text, as character spans; a list for each of several texts."""
        served, _ = service.models.choose(body.model, [TAGGING], "a token classification")
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs

        def entities(predictions: list[Any], ticket: Ticket) -> Any:
            rows = entities_as_json(service, predictions, ticket)
            return rows[0] if isinstance(body.inputs, str) else rows

        return await Prediction(served, body.asked_policy).answer(service, request, texts, texts, entities)

    @router.post("/answer")
    async def answer(body: AnswerBody, request: Request) -> Response:
        """The span of a text that answers a question, null if there is none, and further candidates."""
        served, _ = service.models.choose(body.model, [ANSWERING], "a question answering")

        def first(predictions: list[Any], ticket: Ticket) -> Any:
            prediction = as_json(predictions[0])
            return prediction | {"candidates": prediction["candidates"][: body.top_k]}

        pair = (body.question, body.context)
        return await Prediction(served).answer(service, request, pair, [pair], first)

    @router.post("/fill")
    async def fill(body: FillBody, request: Request) -> Response:
        """The most likely tokens for each [MASK] of a text."""
        served, _ = service.models.choose(body.model, [FILL_MASK], "a masked LM")

        def work(ticket: Ticket) -> Any:
            filled = fill_mask(service, served, body.inputs, ticket, top_k=body.top_k, on_long=body.on_long)
            return [
                {"start": each.offsets[0], "end": each.offsets[1], "candidates": list(map(as_json, each.candidates))}
                for each in filled
            ]

        return await service.answer(request, [body.inputs], work, verb="predict")

    @router.post("/classify")
    async def classify(body: ClassifyBody, request: Request) -> Response:
        """Zero-shot classification with a natural language inference model."""
        served, columns = _inference_model(service, body.model)
        return await zero_shot(service, served, columns, body, request)

    return router


async def zero_shot(
    service: Service,
    served: ServedModel,
    columns: InferenceLabels,
    body: ClassifyBody,
    request: Request,
    on_long: OnLong = "truncate",
) -> Response:
    """Labels with probabilities, best first, as `Model.classify`; a single label is scored by itself.

    Raises:
        EmptyInput: the text is empty.
        InvalidRequest: the template with all labels has too many characters.
    """
    refuse_empty([body.inputs], "inputs", is_one=True)
    labels, template = body.candidate_labels, body.hypothesis_template
    num_characters = sum(len(template) + template.count("{}") * len(label) for label in labels)
    if num_characters > _MOST_CHARACTERS:
        raise InvalidRequest(
            f"hypothesis_template: filled with each of the {len(labels)} labels it has {num_characters:,} characters, "
            f"expected at most {_MOST_CHARACTERS:,} together: shorten it, or the labels"
        )
    pairs = [(body.inputs, hypothesis) for hypothesis in hypotheses(labels, template)]

    def scored(rows: list[np.ndarray], ticket: Ticket) -> list[dict[str, Any]]:
        logits = np.array(rows, np.float32)  # (labels, C)
        scores = columns.probabilities(logits, multi_label=body.multi_label or len(pairs) == 1)
        order = np.argsort(-scores, kind="stable").tolist()
        return [{"label": labels[index], "score": scores[index]} for index in order]

    verb = Prediction(served, on_long, as_logits=True)
    return await verb.answer(service, request, [body.inputs, *labels], pairs, scored)


def _inference_model(service: Service, name: str | None) -> tuple[ServedModel, InferenceLabels]:
    """A natural language inference model and the columns of its logits."""
    candidates = service.models.all.values() if name is None else [service.models.named(name)[0]]
    for served in candidates:
        if isinstance(served, ServedModel) and CLASSIFICATION in served.kinds:
            columns = InferenceLabels.of(served.task.label_names or ())
            if columns is not None:
                return served, columns
    raise WrongModelKind("model is not a natural language inference model: expected a label named entailment")


def _items(inputs: str | list[str] | list[list[str]]) -> tuple[list[Any], bool]:
    """Texts and pairs, and whether it is a single one; two plain strings are a pair, not a batch."""
    if isinstance(inputs, str):
        refuse_empty([inputs], "inputs", is_one=True)
        return [inputs], True
    is_one = all(isinstance(each, str) for each in inputs)
    if is_one and len(inputs) > 2:
        raise InvalidRequest("`inputs`: a list of strings is one text or one pair; several are lists of lists")
    refuse_empty(inputs, "inputs")
    rows: list[Any] = [inputs] if is_one else inputs
    if not is_one:
        refuse_empty([all(row) for row in rows], "inputs")
    return [row[0] if len(row) == 1 else tuple(row) for row in rows], is_one
