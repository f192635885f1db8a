"""Routes of fine-tuned models: /predict as in text-embeddings-inference, and /entities, /answer, /fill, /classify,
which it lacks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from bertkit.inference import FilledMask
from bertkit.inference.zero_shot import TEMPLATE, InferenceLabels, hypotheses
from bertkit.serving.bodies import ModelBody, OneOrMoreBody, TextsBody
from bertkit.serving.refusals import InvalidRequest, WrongModelKind, refuse_empty
from bertkit.serving.routes import Routes, accepts
from bertkit.serving.served_models import ANSWERING, CLASSIFICATION, FILL_MASK, TAGGING, ServedModel
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import filling, prediction
from bertkit.tokenizer.layout import OnLong

_MOST_CHARACTERS = 1_000_000
"""Maximum number of characters of a template filled with each label: a small body could ask for gigabytes."""

_BYTES_PER_ENTITY, _BYTES_PER_CANDIDATE = 100, 80
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


class EntitiesBody(TextsBody, OneOrMoreBody):
    """Body of /entities."""


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


routes = Routes("tasks")


@routes.post("/predict")
def predict(service: Service, body: PredictBody) -> Question:
    """All labels of a text or pair with probabilities, best first; a list for each of several inputs."""
    served = body.chosen(service, [CLASSIFICATION], "a classifier")
    items, is_one = _items(body.inputs)
    return labels(served, body, items, is_one=is_one, as_logits=body.raw_scores)


@routes.post("/entities")
def entities(service: Service, body: EntitiesBody, *, shape: Callable[[Any], Any] = asdict) -> Question:
    """The entities of a text, as character spans; a list for each of several texts."""
    served, texts = body.chosen(service, [TAGGING], "a token classification"), body.texts

    def rows(predictions: list[Any], ticket: Ticket) -> list[Any]:
        made = []
        for each in predictions:
            ticket.reserve(len(each.entities) * _BYTES_PER_ENTITY)
            made.append(list(map(shape, each.entities)))
        return made

    return Question(prediction(served, body.asked_policy), texts, rows, body.is_one)


@routes.post("/answer")
def answer(service: Service, body: AnswerBody) -> Question:
    """The span of a text that answers a question, null if there is none, and further candidates."""

    def first(predictions: list[Any], ticket: Ticket) -> Any:
        made = asdict(predictions[0])
        return made | {"candidates": made["candidates"][: body.top_k]}

    served, pair = body.chosen(service, [ANSWERING], "a question answering"), (body.question, body.context)
    return Question(prediction(served), [pair], first, texts=pair)


@routes.post("/fill")
def fill(service: Service, body: FillBody) -> Question:
    """The most likely tokens for each [MASK] of a text."""

    def shape(masks: list[FilledMask]) -> Any:
        return [
            {"start": mask.offsets[0], "end": mask.offsets[1], "candidates": list(map(asdict, mask.candidates))}
            for mask in masks
        ]

    return filled(service, body, shape)


@routes.post("/classify")
def classify(service: Service, body: ClassifyBody) -> Question:
    """Zero-shot classification with a natural language inference model."""
    served, columns = _inference_model(service, body.model)
    refuse_empty([body.inputs], "inputs", is_one=True)
    names, template = body.candidate_labels, body.hypothesis_template
    num_characters = sum(len(template) + template.count("{}") * len(name) for name in names)
    if num_characters > _MOST_CHARACTERS:
        raise InvalidRequest(
            f"hypothesis_template: filled with each of the {len(names)} labels it has {num_characters:,} characters, "
            f"expected at most {_MOST_CHARACTERS:,} together: shorten it, or the labels"
        )
    pairs = [(body.inputs, hypothesis) for hypothesis in hypotheses(names, template)]

    def scored(rows: list[np.ndarray], ticket: Ticket) -> list[dict[str, Any]]:
        logits = np.array(rows, np.float32)  # (labels, C)
        scores = columns.probabilities(logits, multi_label=body.multi_label or len(pairs) == 1)
        order = np.argsort(-scores, kind="stable").tolist()
        return [{"label": names[index], "score": scores[index]} for index in order]

    verb = prediction(served, body.policy, as_logits=True)
    return Question(verb, pairs, scored, texts=[body.inputs, *names])


def labels(
    served: ServedModel, body: TextsBody, items: Sequence[Any], *, is_one: bool, as_logits: bool,
    top_k: int | None = None,
) -> Question:  # fmt: skip
    """The best labels of each item."""

    def rows(results: list[Any], ticket: Ticket) -> list[Any]:
        return [row[:top_k] for row in labels_as_json(served, results, as_logits=as_logits)]

    verb = prediction(served, body.policy, as_logits=as_logits)
    return Question(verb, items, rows, is_one, texts=["".join(item) for item in items])


def filled(
    service: Service, body: FillBody, shape: Callable[[list[FilledMask]], Any],
    bytes_per_candidate: int = _BYTES_PER_CANDIDATE,
) -> Question:  # fmt: skip
    """What ``shape`` makes of the [MASK]s of a text."""
    served = body.chosen(service, [FILL_MASK], "a masked LM")
    vocabulary = served.tokenizer.vocabulary
    num_candidates = body.inputs.count(vocabulary.special.mask) * min(body.top_k, len(vocabulary))

    def rows(results: list[list[FilledMask]], ticket: Ticket) -> Any:
        return shape(results[0])

    verb = filling(served, body.on_long, body.top_k)
    return Question(verb, [body.inputs], rows, num_bytes=num_candidates * bytes_per_candidate)


def labels_as_json(served: ServedModel, results: Sequence[Any], *, as_logits: bool) -> list[list[dict[str, Any]]]:
    """Labels of each text or pair with probabilities, or logits, best first; the first one says if the model
    abstains."""
    names = served.task.label_names or ()
    rows = [dict(zip(names, each.tolist(), strict=True)) if as_logits else _by_label(each) for each in results]
    made: list[list[dict[str, Any]]] = [
        [{"score": score, "label": label} for label, score in sorted(row.items(), key=lambda each: -each[1])]
        for row in rows
    ]
    for best, result in zip(made, results, strict=True):
        if getattr(result, "label", "") is None:
            best[0]["abstains"] = True
    return made


def _by_label(made: Any) -> dict[str, float]:
    """Probabilities by label; for ordinal tasks the level and its number."""
    return made.probabilities if hasattr(made, "probabilities") else {made.label: made.score}


def _inference_model(service: Service, name: str | None) -> tuple[ServedModel, InferenceLabels]:
    """A natural language inference model and the columns of its logits."""
    candidates = service.models.all.values() if name is None else [service.models.named(name)[0]]
    for served in candidates:
        if isinstance(served, ServedModel) and CLASSIFICATION in served.kinds:
            columns = InferenceLabels.of(served.task.label_names or ())
            if columns is not None:
                return served, columns
    kind = "natural language inference model"
    if name is None:
        raise WrongModelKind(f"no {kind} is served here: none has a label named entailment")
    raise WrongModelKind(f"model is not a {kind}: {name} has no label named entailment")


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
