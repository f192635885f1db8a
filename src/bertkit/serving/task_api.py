"""Routes of fine-tuned models: /predict as in text-embeddings-inference, and /entities, /answer, /fill, /classify,
which it lacks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from bertkit.inference import FilledMask
from bertkit.inference.zero_shot import TEMPLATE, InferenceLabels, hypotheses
from bertkit.serving.bodies import ModelBody, Texts, TextsBody
from bertkit.serving.refusals import InvalidRequest, WrongModelKind, refuse_empty
from bertkit.serving.routes import Routes, accepts
from bertkit.serving.served_models import ANSWERING, CLASSIFICATION, FILL_MASK, TAGGING, ServedModel
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import Filling, Prediction
from bertkit.tokenizer.layout import OnLong

_MOST_CHARACTERS = 1_000_000
"""Maximum number of characters of a template filled with each label: a small body could ask for gigabytes."""

_BYTES_PER_ENTITY = 100
"""About those of its JSON."""

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

    inputs: Annotated[Texts, Field(description="A text of any length, or several.")]


class AnswerBody(ModelBody):
    """Body of /answer."""

    question: Annotated[str, Field(description="What the context is asked.")]
    context: Annotated[str, Field(description="A text of any length.")]
    top_k: Annotated[int, Field(ge=1, le=1_000, description="Number of candidates to return.")] = 5


class FillBody(ModelBody):
    """Body of /fill."""

    inputs: Annotated[str, accepts("a text"), Field(description="A text with [MASK] where tokens are missing.")]
    top_k: Annotated[int, Field(ge=1, le=1_000, description="Number of tokens to return for each.")] = 5
    on_long: Annotated[OnLong, Field(description="What to do with a text that is too long.")] = "window"


class ClassifyBody(TextsBody):
    """Body of /classify."""

    inputs: Annotated[str, Field(description="A text.")]
    candidate_labels: Annotated[
        list[str], Field(min_length=1, max_length=1_000, description="Names of labels, in words of the language.")
    ]
    hypothesis_template: Annotated[str, Field(description="A sentence with {} for a label.")] = TEMPLATE
    multi_label: Annotated[bool, Field(description="Score each label independently.")] = False


def task_routes(service: Service) -> Routes:
    """The routes, for an app."""
    routes = Routes("tasks")

    @routes.post("/predict")
    def predict_labels(body: PredictBody) -> Question:
        """All labels of a text or pair with probabilities, best first; a list for each of several inputs."""
        served, _ = service.models.choose(body.model, [CLASSIFICATION], "a classifier")
        items, is_one = _items(body.inputs)
        verb = Prediction(served, body.policy, as_logits=body.raw_scores)

        def labels(results: list[Any], ticket: Ticket) -> Any:
            rows = labels_as_json(verb, results)
            return rows[0] if is_one else rows

        return Question(["".join(item) for item in items], verb, items, labels)

    @routes.post("/entities")
    def find_entities(body: EntitiesBody) -> Question:
        """The entities of a text, as character spans; a list for each of several texts."""
        return entities(_chosen(service, body, TAGGING, "a token classification"), body)

    @routes.post("/answer")
    def find_answer(body: AnswerBody) -> Question:
        """The span of a text that answers a question, null if there is none, and further candidates."""

        def first(prediction: dict[str, Any]) -> Any:
            return prediction | {"candidates": prediction["candidates"][: body.top_k]}

        served = _chosen(service, body, ANSWERING, "a question answering")
        return answer(served, (body.question, body.context), first)

    @routes.post("/fill")
    def fill(body: FillBody) -> Question:
        """The most likely tokens for each [MASK] of a text."""

        def shape(masks: list[FilledMask]) -> Any:
            return [
                {"start": mask.offsets[0], "end": mask.offsets[1], "candidates": list(map(asdict, mask.candidates))}
                for mask in masks
            ]

        return filled(_chosen(service, body, FILL_MASK, "a masked LM"), body, shape)

    @routes.post("/classify")
    def classify(body: ClassifyBody) -> Question:
        """Zero-shot classification with a natural language inference model."""
        served, columns = _inference_model(service, body.model)
        return zero_shot(served, columns, body)

    return routes


def zero_shot(
    served: ServedModel,
    columns: InferenceLabels,
    body: ClassifyBody,
) -> Question:
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

    verb = Prediction(served, body.policy, as_logits=True)
    return Question([body.inputs, *labels], verb, pairs, scored)


def entities(
    served: ServedModel,
    body: EntitiesBody,
    shape: Callable[[Any], Any] = asdict,
) -> Question:
    """The entities of each text, as ``shape`` makes them."""
    is_one = isinstance(body.inputs, str)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    refuse_empty(texts, "inputs", is_one=is_one)

    def rows(predictions: list[Any], ticket: Ticket) -> Any:
        made = []
        for prediction in predictions:
            ticket.reserve(len(prediction.entities) * _BYTES_PER_ENTITY)
            made.append(list(map(shape, prediction.entities)))
        return made[0] if is_one else made

    return Question(texts, Prediction(served, body.asked_policy), texts, rows)


def answer(
    served: ServedModel,
    pair: tuple[str, str],
    shape: Callable[[dict[str, Any]], Any],
) -> Question:
    """What ``shape`` makes of the answer to a question about a context."""

    def first(predictions: list[Any], ticket: Ticket) -> Any:
        return shape(asdict(predictions[0]))

    return Question(pair, Prediction(served), [pair], first)


def filled(
    served: ServedModel,
    body: FillBody,
    shape: Callable[[list[FilledMask]], Any],
    bytes_per_candidate: int = 80,
) -> Question:
    """What ``shape`` makes of the [MASK]s of a text."""
    vocabulary = served.tokenizer.vocabulary
    num_candidates = body.inputs.count(vocabulary.special.mask) * min(body.top_k, len(vocabulary))

    def rows(results: list[list[FilledMask]], ticket: Ticket) -> Any:
        return shape(results[0])

    verb = Filling(served, body.on_long, body.top_k)
    return Question([body.inputs], verb, [body.inputs], rows, num_bytes=num_candidates * bytes_per_candidate)


def labels_as_json(verb: Prediction, results: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """Labels of each text or pair with probabilities, or with the logits of the verb, best first; the
    first one says if the model abstains."""
    names = verb.served.task.label_names or ()
    rows = [dict(zip(names, each.tolist(), strict=True)) if verb.as_logits else _by_label(each) for each in results]
    made: list[list[dict[str, Any]]] = [
        [{"score": score, "label": label} for label, score in sorted(row.items(), key=lambda each: -each[1])]
        for row in rows
    ]
    for labels, result in zip(made, results, strict=True):
        if getattr(result, "label", "") is None:
            labels[0]["abstains"] = True
    return made


def _by_label(prediction: Any) -> dict[str, float]:
    """Probabilities by label; for ordinal tasks the level and its number."""
    if hasattr(prediction, "probabilities"):
        return prediction.probabilities
    return {prediction.label: prediction.score}


def _chosen(service: Service, body: ModelBody, kind: str, what: str) -> ServedModel:
    return service.models.choose(body.model, [kind], what)[0]


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
