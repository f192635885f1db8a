"""Labeled example files on the command line: column roles, and bad rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import note
from bertkit.errors import DataError, OverLengthError, UsageError
from bertkit.inference.runner import chunks
from bertkit.tasks import ExampleFile, TextTask
from bertkit.tasks.example_file import labeled_file
from bertkit.tasks.reading import BadRows

if TYPE_CHECKING:
    from bertkit.inference import InferenceReport
    from bertkit.model import Model

_SHOWN = 3


def columns_of(given: Sequence[str] | None) -> dict[str, str]:
    """``["text=sentence", "label=polarity"]`` as a dict.

    Raises:
        UsageError: an entry without "=", or a role named twice.
    """
    columns: dict[str, str] = {}
    for entry in given or ():
        role, equals, name = entry.partition("=")
        if not equals or not role or not name or role in columns:
            raise UsageError(f"--columns {entry!r}: expected role=name, each role once, such as text=sentence")
        columns[role] = name
    return columns


def bad_rows_of(skip: bool) -> BadRows:
    """Handling of unusable rows by a command with the option --skip-bad."""
    return BadRows(skip=skip, advice="; --skip-bad skips rows that cannot be used")


def read_both(
    kind: type[TextTask],
    train: Sequence[Path],
    dev: Path | None,
    columns: Mapping[str, str],
    options: Mapping[str, Any],
    skip: bool,
    class_names: Sequence[str] | None = None,
    new_model: "Callable[[list[Any]], Model] | None" = None,
) -> tuple[list[Any], list[Any], list[str]]:
    """Training and dev examples, and with ``skip`` the skipped rows with their reasons; notes are printed to stderr.

    Args:
        class_names: names of labels that are integers in the files.
        new_model: creates the model to train on examples, to skip those too long for it; None: no length is refused.

    Raises:
        DataError: a row that cannot be used, unless ``skip``; no rows are left; or a label column without a 1.
    """
    bad_rows, skipped, model = bad_rows_of(skip), [], None
    examples = [
        kind.in_dataset(example, number)
        for number, path in enumerate(train)
        for example in kind.read(
            ExampleFile(path, True, columns, kind.labels_in(options), bad_rows, options, class_names)
        )
    ]
    kind.check_columns(examples, columns)
    if skip:
        examples = _usable(kind, examples, skipped)
        if new_model is not None:
            model = new_model(examples)
            examples = _usable(kind, fitting(model, examples, skipped), skipped)
    held_out = []
    if dev is not None:
        task = kind.of_examples(examples, options)
        file = labeled_file(task, dev, columns=columns, class_names=class_names, bad_rows=bad_rows, **options)
        held_out = list(task.read(file))
        if skip:
            fits = held_out if model is None else fitting(model, held_out, skipped)
            held_out = _usable(kind, fits, skipped, held_out=True)
    note_reading(bad_rows)
    return examples, held_out, [*map(str, bad_rows.rows), *skipped]


def fitting(model: "Model", examples: Iterable[Any], skipped: list[str]) -> Iterator[Any]:
    """Examples that are not too long for a model; the others are added to ``skipped``, with their reasons.

    Raises:
        DataError: every example is too long.
    """
    has_any = False

    def why_too_long(some: list[Any]) -> str:
        try:
            model.trained.task.encode(model.tokenizer, some, model.trained.layout)
        except OverLengthError as error:
            return str(error)
        return ""

    for chunk in chunks(examples, num_characters=lambda example: example.num_characters):
        is_one_too_long = bool(why_too_long(chunk))
        for example in chunk:
            if is_one_too_long and (why := why_too_long([example])):
                skipped.append(why)
            else:
                has_any = True
                yield example
    if skipped and not has_any:
        raise DataError(f"no row can be used; {len(skipped)} were skipped, the last: {skipped[-1]}")


def _usable(kind: type[TextTask], examples: Iterable[Any], skipped: list[str], *, held_out: bool = False) -> list[Any]:
    """Usable examples; the others are added to ``skipped``, with their locations and reasons."""
    usable, others = kind.usable(list(examples), held_out=held_out)
    skipped += [f"{example.location}: {why}" for example, why in others]
    return usable


def note_reading(bad_rows: BadRows) -> None:
    """Print to stderr what was guessed or changed while reading."""
    for sentence in bad_rows.noted():
        note(sentence)


def note_skipped(rows: Sequence[object]) -> None:
    """Print the number of skipped rows to stderr, with reasons for the first ones."""
    if rows:
        note(f"{len(rows)} rows were skipped:")
        for row in rows[:_SHOWN]:
            note(f"  {row}")
        if len(rows) > _SHOWN:
            note("  ...")


def note_cut(report: "InferenceReport") -> None:
    """Print to stderr how many rows were cut to the model's maximum length, and how many tokens are unknown."""
    if report.num_texts_cut:
        note(f"{report.num_texts_cut} rows exceeded the model's maximum length and lost {report.num_tokens_cut} tokens")
    if report.num_unknown:
        empty = f"; {report.num_empty} texts have no known token" if report.num_empty else ""
        note(f"{report.num_unknown} of {report.num_tokens} tokens are unknown to the model ([UNK]){empty}")
