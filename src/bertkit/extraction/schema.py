"""What a model in the form of GLiNER2 is asked for, and how it stands before a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from bertkit.errors import CheckpointError, UsageError
from bertkit.extraction.prompts import checked_labels
from bertkit.tokenizer import Tokenizer

Labels = Sequence[str] | Mapping[str, str | None]
"""Names, or names with their descriptions."""

MARKERS = {"entities": "[E]", "records": "[C]", "relations": "[R]", "classes": "[L]", "multilabel_classes": "[L]"}
"""The token before each label of a task, by its kind."""

_TASK, _DESCRIPTION, _NEXT_TASK, _TEXT = "[P]", "[DESCRIPTION]", "[SEP_STRUCT]", "[SEP_TEXT]"


@dataclass(frozen=True)
class Schema:
    """What to find in a text. Labels and names may have descriptions: ``{"drug": "a medical substance"}``."""

    entities: Labels = ()
    records: Mapping[str, Labels] = field(default_factory=dict)  # fields of each kind of record
    relations: Labels = ()  # each between a head and a tail
    classes: Mapping[str, Labels] = field(default_factory=dict)  # one of the labels of each question
    multilabel_classes: Mapping[str, Labels] = field(default_factory=dict)  # any of them

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """The schema of a JSON object with these keys.

        Raises:
            UsageError: it is not an object, or has other keys or values.
        """
        names = [one.name for one in fields(cls)]
        if not isinstance(content, dict) or content.keys() - set(names):
            raise UsageError(f"the schema is {content!r:.60}: expected a JSON object with keys of {', '.join(names)}")
        return cls(**content)


@dataclass(frozen=True, eq=False)
class Task:
    """One question of a schema, and where it stands in the prompt."""

    kind: str  # field of the schema
    name: str
    labels: tuple[str, ...]
    marks: np.ndarray  # (1 + labels,) int64 indices in the prompt: of the task, and of each label


@dataclass(frozen=True, eq=False)
class SchemaPrompt:
    """Tokens before a text that state a schema."""

    tasks: list[Task]
    tokens: np.ndarray  # (n,) int64

    @property
    def label_groups(self) -> tuple[tuple[str, ...], ...]:
        """The labels of each task."""
        return tuple(task.labels for task in self.tasks)


def schema_prompt(schema: Schema, tokenizer: Tokenizer, most_tokens: int) -> SchemaPrompt:
    """The tokens of a schema. Names stand in alphabetical order, so that their order has no influence.

    Raises:
        UsageError: the schema is empty or too long, or a name is empty or given twice.
        CheckpointError: the tokenizer lacks the markers of such prompts.
    """
    builder, tasks = _Builder(tokenizer), list[Task]()
    for kind, name, labels, described in _questions(schema):
        if builder.tokens:
            builder.add_marker(_NEXT_TASK)
        tasks.append(builder.task(kind, name, labels, described))
    if not tasks:
        raise UsageError("the schema is empty: expected entities, records, relations or classes to look for")
    builder.add_marker(_TEXT)
    if len(builder.tokens) > most_tokens:
        raise UsageError(
            f"the schema has {len(builder.tokens)} tokens: expected at most {most_tokens}, the space that the model "
            "has for it; ask for a part of it at a time"
        )
    return SchemaPrompt(tasks, np.array(builder.tokens, np.int64))


def _questions(schema: Schema) -> list[tuple[str, str, tuple[str, ...], str]]:
    """Kind, name, labels and prompt of each task, in the published order of kinds."""
    questions = [("records", name, *_described(name, labels)) for name, labels in _sorted(schema.records)]
    if schema.entities:
        questions.append(("entities", "entities", *_described("entities", schema.entities)))
    names, texts = named(schema.relations) if schema.relations else ((), {})
    for name in names:
        prompt = f"{name}: {texts[name]}" if texts.get(name) else name
        questions.append(("relations", name, ("head", "tail"), prompt))
    for kind in ("classes", "multilabel_classes"):
        questions += [(kind, name, *_described(name, labels)) for name, labels in _sorted(getattr(schema, kind))]
    return questions


def _sorted(tasks: Mapping[str, Labels]) -> list[tuple[str, Labels]]:
    if not isinstance(tasks, Mapping):
        raise UsageError(f'{tasks!r:.60} has no names: expected labels by name, such as {{"topic": ["sports", "art"]}}')
    return sorted((name, tasks[name]) for name in (checked_labels(list(tasks)) if tasks else ()))


def _described(name: str, labels: Labels) -> tuple[tuple[str, ...], str]:
    """Labels, and the name with their descriptions."""
    names, texts = named(labels)
    described = [f" {_DESCRIPTION} {label}: {texts[label]}" for label in names if texts.get(label)]
    return names, "".join([name, *described])


def named(labels: Labels) -> tuple[tuple[str, ...], Mapping[str, str | None]]:
    """The sorted names, and their descriptions."""
    texts = labels if isinstance(labels, Mapping) else {}
    if not isinstance(labels, Sequence | Mapping) or not all(isinstance(each, str | None) for each in texts.values()):
        raise UsageError(f'{labels!r:.60}: expected names, such as ["person"], or {{"person": "the name of a human"}}')
    return checked_labels(labels if isinstance(labels, str) else list(labels)), texts


class _Builder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.tokens = tokenizer, list[int]()

    def task(self, kind: str, name: str, labels: tuple[str, ...], prompt: str) -> Task:
        """Add a task: ``( [P] prompt ( [E] label [E] label ) )``."""
        self.add("(")
        marks = [self.add_marker(_TASK)]
        for number, part in enumerate(prompt.split(_DESCRIPTION)):
            if number:
                self.add_marker(_DESCRIPTION)
            self.add(part)
        self.add("(")
        for label in labels:
            marks.append(self.add_marker(MARKERS[kind]))
            self.add(label)
        self.add(")")
        self.add(")")
        return Task(kind, name, labels, np.array(marks, np.int64))

    def add(self, text: str) -> None:
        self.tokens += self.tokenizer.plain_ids([text])[0].tolist()

    def add_marker(self, marker: str) -> int:
        """Add a marker; its index."""
        if marker not in self.tokenizer.vocabulary:
            raise CheckpointError(f"the tokenizer has no {marker}: its files do not belong to a model of schemas")
        self.tokens.append(self.tokenizer.vocabulary.id(marker))
        return len(self.tokens) - 1
