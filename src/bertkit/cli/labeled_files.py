"""Labeled example files on the command line: column roles, and bad rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import note
from bertkit.errors import UsageError
from bertkit.tasks import ExampleFile, TextTask
from bertkit.tasks.reading import BadRows

if TYPE_CHECKING:
    from bertkit.inference import PredictReport

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
) -> tuple[list[Any], list[Any], list[str]]:
    """Training and dev examples, and with ``skip`` the skipped rows with their reasons.

    Raises:
        DataError: a row that cannot be used, unless ``skip``; or no rows are left.
    """
    bad_rows, skipped = bad_rows_of(skip), []
    examples = [
        kind.in_dataset(example, number)
        for number, path in enumerate(train)
        for example in kind.read(ExampleFile(path, True, columns, kind.labels_in(options), bad_rows))
    ]
    if skip:
        examples, skipped = _usable(kind, examples, held_out=False)
    held_out = []
    if dev is not None:
        names = kind.of_examples(examples, options).known_labels
        held_out = list(kind.read(ExampleFile(dev, True, columns, names, bad_rows)))
        if skip:
            held_out, further = _usable(kind, held_out, held_out=True)
            skipped += further
    return examples, held_out, [*map(str, bad_rows.rows), *skipped]


def _usable(kind: type[TextTask], examples: list[Any], *, held_out: bool) -> tuple[list[Any], list[str]]:
    """Usable examples, and the locations of the others with the reasons."""
    skipped: list[str] = []
    while unusable := kind.unusable_examples(examples, held_out=held_out):
        skipped += [f"{example.location}: {why}" for example, why in unusable]
        hopeless = {id(example) for example, _ in unusable}
        examples = [example for example in examples if id(example) not in hopeless]
    return examples, skipped


def note_skipped(rows: Sequence[object]) -> None:
    """Print the number of skipped rows to stderr, with reasons for the first ones."""
    if rows:
        note(f"{len(rows)} rows were skipped:")
        for row in rows[:_SHOWN]:
            note(f"  {row}")
        if len(rows) > _SHOWN:
            note("  ...")


def note_cut(report: "PredictReport") -> None:
    """Print to stderr how many rows were cut to the model's maximum length."""
    if report.num_cut:
        note(f"{report.num_cut} rows exceeded the model's maximum length and lost {report.num_tokens_cut} tokens")
