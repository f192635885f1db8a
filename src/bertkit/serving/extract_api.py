"""Routes /extract: what labels name in texts; and /run: results of several heads from one pass of the encoder."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from bertkit.extraction import ExtractionReport, Reading, Schema
from bertkit.extraction.prompts import MOST_LABELS
from bertkit.inference import InferenceReport
from bertkit.redaction import Redaction
from bertkit.serving.bodies import OneOrMoreBody
from bertkit.serving.jobs import Verb
from bertkit.serving.refusals import InvalidRequest
from bertkit.serving.routes import Routes, accepts
from bertkit.serving.served_models import EXTRACTION, TAGGING, ServedModel
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import finite

_MOST_LABEL_CHARACTERS = 100_000
"""Of all labels of a request together, or of its schema."""

_BYTES_PER_ENTITY = 160
"""About those of its JSON, without its text."""

Labels = Annotated[list[str] | dict[str, str | None], accepts("a list of labels, or labels with descriptions")]


class FindBody(OneOrMoreBody):
    """Fields of bodies that ask for entities."""

    labels: Annotated[
        Labels | None, Field(description="What to look for; of a token classification by default all of its labels.")
    ] = None
    threshold: Annotated[
        float | None, Field(ge=0, le=1, description="Entities have a higher score; by default that of the model.")
    ] = None

    @property
    def checked_texts(self) -> list[str]:
        """The texts.

        Raises:
            EmptyInput: no text, or an empty one.
            InvalidRequest: the labels are too many, or too long.
        """
        refuse_long(self.labels, "labels")
        return self.texts


class ExtractBody(FindBody):
    """Body of /extract. With more than labels, it is a `Schema` whose entities they are."""

    nested: Annotated[bool, Field(description="Also return entities inside others.")] = False
    relations: Labels = Field(default_factory=list, description="Names of relations between entities.")
    records: dict[str, Labels] = Field(default_factory=dict, description="The fields of each kind of record.")
    classes: dict[str, Labels] = Field(default_factory=dict, description="The labels of each question; one is right.")
    multilabel_classes: dict[str, Labels] = Field(
        default_factory=dict, description="The labels of each question; any of them are right."
    )

    def schema_of_all(self) -> Schema | None:
        """The schema; None if there are only labels.

        Raises:
            InvalidRequest: it is too large.
        """
        others = {name: getattr(self, name) for name in ("relations", "records", "classes", "multilabel_classes")}
        for name, value in others.items():
            refuse_long(value, name)
        return Schema(entities=self.labels or (), **others) if any(others.values()) else None


class RunBody(FindBody):
    """Body of /run."""

    heads: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=32,
            description="entities, redaction, vector or prediction of the model, and names of served models with the "
            "same trunk.",
        ),
    ]


routes = Routes("tasks")


@routes.post("/extract")
def extract(service: Service, body: ExtractBody) -> Question:
    """Entities of each text with characters, label, score and window, or with a schema readings: its entities,
    relations, records and classes; of one text, not in a list. A report counts what was read."""
    texts, schema = body.checked_texts, body.schema_of_all()
    served = finder(service, body.model)
    if schema is None:
        served.model.entity_labels(body.labels)

    def found(part: Sequence[str], report: InferenceReport) -> list[tuple[Any, ExtractionReport | None]]:
        read = ExtractionReport()
        options: dict[str, Any] = {"threshold": body.threshold, "report": read}
        options |= {"labels": body.labels, "nested": body.nested} if schema is None else {"schema": schema}
        rows = served.model.extract(part, **options)
        return list(zip_longest(rows, [read]))

    def answer(results: list[tuple[Any, ExtractionReport | None]], ticket: Ticket) -> Any:
        rows = [as_json(each, ticket) for each, _ in results]
        reports = [each for _, each in results if each is not None]
        name = "entities" if schema is None else "readings"
        return {name: rows[0] if body.is_one else rows, "report": ExtractionReport.of_all(reports).to_json()}

    return Question(Verb(found), texts, answer)


@routes.post("/run")
def run(service: Service, body: RunBody) -> Question:
    """Results of several heads by their names, from one pass of the encoder; of each of several texts in a list."""
    texts = body.checked_texts
    known = ("entities", "redaction", "vector", "prediction")
    others = {name: _encoder(service, name) for name in body.heads if name not in known}
    if body.model is None and {"entities", "redaction"}.intersection(body.heads):
        first = finder(service, None)
    else:
        first = _encoder(service, body.model or next(iter(others), None))
    heads = [others[name].model if name in others else name for name in body.heads]

    def results(part: Sequence[str], report: InferenceReport) -> list[tuple[Any, ...]]:
        return first.model.run(part, heads, labels=body.labels, threshold=body.threshold)

    def rows(results: list[tuple[Any, ...]], ticket: Ticket) -> list[dict[str, Any]]:
        return [{name: as_json(one, ticket) for name, one in zip(body.heads, each, strict=True)} for each in results]

    return Question(Verb(results), texts, rows, body.is_one)


def finder(service: Service, name: str | None) -> ServedModel:
    """The named extraction model or tagger, or else the first extraction model, then the first tagger with entities.

    Raises:
        UnknownModel, WrongModelKind: there is none.
    """
    what = "an extraction or token classification"
    if name is None:
        models = [each for each in service.models.all.values() if isinstance(each, ServedModel)]
        for kind in (EXTRACTION, TAGGING):
            for served in models:
                if kind in served.kinds and (kind == EXTRACTION or served.task.entity_types):
                    return served
    return service.models.choose(name, [EXTRACTION, TAGGING], what)[0]


def refuse_long(labels: Any, field: str) -> None:
    """Raise an InvalidRequest for labels, or a schema, that would cost far more than their texts."""
    number, characters = _size(labels)
    if number > MOST_LABELS:
        raise InvalidRequest(f"{field}: {number:,} labels: expected at most {MOST_LABELS:,}")
    if characters > _MOST_LABEL_CHARACTERS:
        raise InvalidRequest(
            f"{field}: {characters:,} characters: expected at most {_MOST_LABEL_CHARACTERS:,}; ask for fewer at a time"
        )


def _size(labels: Any) -> tuple[int, int]:
    """Number of strings, and of their characters."""
    if isinstance(labels, str):
        return 1, len(labels)
    if isinstance(labels, dict):
        labels = [*labels, *labels.values()]
    sizes = [_size(each) for each in labels] if isinstance(labels, list) else []
    return sum(number for number, _ in sizes), sum(characters for _, characters in sizes)


def _encoder(service: Service, name: str | None) -> ServedModel:
    return service.models.choose(name, None, "an encoder")[0]


def as_json(result: Any, ticket: Ticket) -> Any:
    """A result of a head: entities, a reading, a redaction, a vector or a prediction."""
    if isinstance(result, np.ndarray):
        return finite(result)
    entities = result if isinstance(result, tuple) else getattr(result, "entities", ())
    ticket.reserve(sum(_BYTES_PER_ENTITY + len(each.text) for each in entities))
    if isinstance(result, tuple):
        return [{name: value for name, value in asdict(each).items() if value is not None} for each in result]
    if isinstance(result, Redaction):
        ticket.reserve(len(result.text) + _BYTES_PER_ENTITY * len(result.replacements))
    if isinstance(result, Reading):
        num_spans = sum(len(spans) for rows in result.records.values() for row in rows for spans in row.values())
        ticket.reserve(_BYTES_PER_ENTITY * (num_spans + 2 * len(result.relations)))
    return asdict(result)
