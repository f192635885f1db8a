"""What the windows of a text say of a schema, as one reading."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bertkit.extraction.candidates import Candidates
from bertkit.extraction.decoding import Entity, best_spans, entity_of
from bertkit.extraction.schema import Task
from bertkit.extraction.windows import Window, Words


@dataclass(frozen=True)
class Relation:
    """Two spans of a text that stand in a relation."""

    label: str
    head: Entity
    tail: Entity
    score: float | None = None  # None: that of the model is of its sides only


@dataclass(frozen=True)
class Reading:
    """What a text says of a schema."""

    entities: tuple[Entity, ...] = ()  # in the order of the text; those of one label do not overlap
    records: dict[str, list[dict[str, tuple[Entity, ...]]]] = field(default_factory=dict)  # spans of each field
    relations: tuple[Relation, ...] = ()
    classes: dict[str, dict[str, float]] = field(default_factory=dict)  # probability of each label
    multilabel_classes: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass
class Finding:
    """What one window says, by the number of the task."""

    window: Window
    spans: dict[int, list[list[Candidates]]] = field(default_factory=dict)  # of each instance and label, in words
    probabilities: dict[int, np.ndarray] = field(default_factory=dict)  # of each label


class TextReader:
    """Puts the findings of the windows of a text together.

    Args:
        together: entities of all labels are decoded together, so that none overlaps another; else each label alone.
        nested: see `best_spans`.
    """

    def __init__(self, text: str, words: Words, findings: Sequence[Finding], *, together: bool, nested: bool) -> None:
        self.text, self.words, self.findings = text, words, findings
        self.together, self.nested = together, nested

    def reading(self, tasks: Sequence[Task]) -> Reading:
        """The answers to all tasks."""
        entities, relations = list[Entity](), list[Relation]()
        reading = Reading()
        for number, task in enumerate(tasks):
            if task.kind == "entities":
                entities = self._entities(number, task.labels)
            elif task.kind == "records":
                reading.records[task.name] = list(self._instances(number, task.labels))
            elif task.kind == "relations":
                relations += self._relations(number, task.name)
            else:
                rows = np.array([each.probabilities[number] for each in self.findings], np.float64)
                getattr(reading, task.kind)[task.name] = dict(zip(task.labels, rows.mean(0).tolist(), strict=True))
        return Reading(tuple(entities), reading.records, tuple(relations), reading.classes, reading.multilabel_classes)

    def _entities(self, number: int, labels: Sequence[str]) -> list[Entity]:
        parts, windows, found = list[Candidates](), list[Window](), list[tuple[Entity, int]]()
        for finding in self.findings:
            window = finding.window
            for of_labels in finding.spans.get(number, ()):
                for label, spans in enumerate(map(self._of_text, of_labels)):
                    own = spans.chosen((spans.start >= window.first_owned) & (spans.start < window.end_owned))
                    parts.append(own._replace(label=np.full(len(own.score), label)))
                    windows += [window] * len(own.score)
        if not windows:
            return []
        spans = Candidates(*map(np.concatenate, zip(*parts, strict=True)))
        groups = [np.flatnonzero(spans.label == label) for label in range(len(labels))]
        for group in [np.arange(len(windows))] if self.together else groups:
            for index in group[best_spans(spans.chosen(group), nested=self.nested)].tolist():
                label = int(spans.label[index])
                found.append((self._entity(spans, index, labels[label], windows[index]), label))
        return [entity for entity, _ in sorted(found, key=lambda each: (each[0].start, each[0].end, each[1]))]

    def _instances(self, number: int, labels: Sequence[str]) -> Iterator[dict[str, tuple[Entity, ...]]]:
        """Instances of a task, each by the window that owns its first span."""
        for finding in self.findings:
            window = finding.window
            for of_labels in finding.spans.get(number, ()):
                instance, starts = dict[str, tuple[Entity, ...]](), list[int]()
                for label, spans in zip(labels, map(self._of_text, of_labels), strict=True):
                    kept = best_spans(spans, nested=False)
                    starts += spans.start[kept].tolist()
                    instance[label] = tuple(self._entity(spans, int(index), label, window) for index in kept)
                if starts and window.first_owned <= min(starts) < window.end_owned:
                    yield instance

    def _relations(self, number: int, name: str) -> Iterator[Relation]:
        """Relations with both sides; each side is the span with the highest score."""
        for instance in self._instances(number, ("head", "tail")):
            if instance["head"] and instance["tail"]:
                head, tail = (max(instance[side], key=lambda each: each.score) for side in ("head", "tail"))
                yield Relation(name, head, tail)

    def _of_text(self, spans: Candidates) -> Candidates:
        """The spans without those of the full stop that is not in the text."""
        return spans.chosen(self.words.ends[spans.end] <= len(self.text))

    def _entity(self, spans: Candidates, index: int, label: str, window: Window) -> Entity:
        return entity_of(self.text, self.words, spans, index, label, window)
