"""Reader of multiple choice questions: SWAG's csv, OpenBookQA's tsv and jsonl, and jsonl or parquet with a list of
choices."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.files import BadRow, BadRows, extension, location
from bertkit.files.labeled_tables import Table, id_of, needed_text, open_table
from bertkit.files.tables import Row
from bertkit.tasks.examples import ChoiceQuestion

_SWAG = ("sent1", "sent2", "ending0", "ending1")
_OPEN_BOOK = ("Question Stem", "Choices")
_OBJECT = ("question", "context", "choices", "label")
_LETTERS = tuple("ABCDEFGHIJ")
_CHOICE = re.compile(r"(?:^|\s)\(([A-J])\)(?=\s|$)")


def read_choices(
    path: str | Path, *, labeled: bool = True, bad_rows: BadRows | None = None
) -> Iterator[ChoiceQuestion]:
    """Read the questions of a file, one at a time.

    Args:
        path: csv or tsv with SWAG's columns (sent1, sent2, ending0 and so on, label) or OpenBookQA's (Question Stem,
            Choices, Answer Key); jsonl or parquet with OpenBookQA's keys (question.stem, question.choices, answerKey),
            or with "context" or "question", "choices", a list of texts, and "label", the number of one from 0.
        labeled: False: the right choice is not read.
        bad_rows: receives unusable questions; None: such a question is an error.

    Raises:
        DataError: no such file, other columns, a bad question, no question at all.
        DependencyError: parquet without pyarrow.
    """
    bad_rows = bad_rows or BadRows()
    with open_table(path, (), (*_SWAG, *_OPEN_BOOK, *_OBJECT)) as table:
        read = _reader(table, Path(path))

        def question(row: Row) -> ChoiceQuestion:
            context, choices, label = read(row.values)
            _check(choices, label, labeled)
            name = id_of(row.values) or id_of(row.values, "ID")
            return ChoiceQuestion(context, choices, label if labeled else None, name, location(path, row.line))

        yield from bad_rows.usable(path, table.rows, question)


_Read = tuple[str, tuple[str, ...], Any]
"""Text, choices, and the index of the right one."""


def _reader(table: Table, path: Path) -> Any:
    names = set(table.names)
    if names >= set(_SWAG):
        return _of_swag
    if names >= set(_OPEN_BOOK):
        return _of_packed
    if extension(path) not in (".csv", ".tsv", ".txt") and (not names or names & {"choices", "question"}):
        return _of_object
    raise DataError(
        f"{path} has the columns {', '.join(table.names)}: expected {', '.join(_SWAG)} as in SWAG, "
        f"{', '.join(_OPEN_BOOK)} as in OpenBookQA, or 'choices' with 'context' or 'question' in jsonl"
    )


def _check(choices: tuple[str, ...], label: Any, labeled: bool) -> None:
    if len(choices) < 2:
        raise BadRow(f" has {len(choices)} choices: expected at least 2")
    if labeled and not (type(label) is int and 0 <= label < len(choices)):
        raise BadRow(f": the right choice is {label!r:.40}: expected its index, from 0 to {len(choices) - 1}")
    if labeled and not all(choice.strip() for choice in choices):
        raise BadRow(" has an empty choice: fill it in, or remove the question")


def _of_swag(values: Mapping[str, Any]) -> _Read:
    """Text A is the first sentence; text B is the beginning of the second with one of its endings."""
    endings = sorted((name for name in values if re.fullmatch(r"ending\d", name)), key=lambda name: name[-1])
    first, second, *rest = [needed_text(values, name) for name in ("sent1", "sent2", *endings)]
    label = values.get("label")
    if isinstance(label, str) and label.strip().isdecimal():
        label = int(label)
    return first, tuple(f"{second} {ending}".strip() for ending in rest), label


def _of_packed(values: Mapping[str, Any]) -> _Read:
    """Choices in one field: (A) the first (B) the second."""
    text, marks = needed_text(values, "Choices"), []
    for match in _CHOICE.finditer(text):
        if _LETTERS[len(marks) : len(marks) + 1] == (match[1],):  # another letter is part of a choice
            marks.append(match)
    if not marks or text[: marks[0].start()].strip():
        raise BadRow(f": the choices {text:.60} do not start with (A)")
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    choices = tuple(text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True))
    letter = str(values.get("Answer Key", "")).strip()
    return needed_text(values, "Question Stem"), choices, _LETTERS.index(letter) if letter in _LETTERS else letter


def _of_object(values: Mapping[str, Any]) -> _Read:
    stem, choices, label = values.get("question"), values.get("choices"), values.get("label")
    if isinstance(stem, dict):  # OpenBookQA's and ARC's own
        choices, stem = stem.get("choices"), stem.get("stem")
    elif isinstance(stem, str) and values.get("context") and choices:
        raise BadRow(" has both 'context' and 'question': expected one text; join them")
    elif stem is None:
        stem = values.get("context", values.get("question_stem"))
    letters = None
    if isinstance(choices, dict):  # the hub's
        letters, choices = choices.get("label"), choices.get("text")
    if isinstance(choices, list) and choices and all(isinstance(choice, dict) for choice in choices):
        letters, choices = [choice.get("label") for choice in choices], [choice.get("text") for choice in choices]
    if "answerKey" in values and isinstance(letters, list):
        key = values["answerKey"]
        label = letters.index(key) if key in letters else key
    if not isinstance(stem, str) or not isinstance(choices, list):
        raise BadRow(": expected 'context' or 'question', and 'choices', a list of texts")
    first, *rest = [needed_text({"choices": text}, "choices") for text in (stem, *choices)]
    return first, tuple(rest), label
