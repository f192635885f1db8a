"""Files of examples on the command line: which column is what, and what becomes of bad rows."""

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


def read_both(
    kind: type[TextTask],
    train: Sequence[Path],
    dev: Path | None,
    columns: Mapping[str, str],
    options: Mapping[str, Any],
    skip: bool,
) -> tuple[list[Any], list[Any], list[str]]:
    """Training and dev examples, and with ``skip`` what was set aside, and why.

    Raises:
        DataError: a row that cannot be used, unless ``skip``; or nothing is left.
    """
    bad_rows, set_aside = BadRows(skip=skip), []
    examples = [
        kind.in_dataset(example, number)
        for number, path in enumerate(train)
        for example in kind.read(ExampleFile(path, True, columns, kind.labels_in(options), bad_rows))
    ]
    if skip:
        examples, set_aside = _learnable(kind, examples, held_out=False)
    held_out = []
    if dev is not None:
        names = kind.of_examples(examples, options).known_labels
        held_out = list(kind.read(ExampleFile(dev, True, columns, names, bad_rows)))
        if skip:
            held_out, further = _learnable(kind, held_out, held_out=True)
            set_aside += further
    return examples, held_out, [*map(str, bad_rows.rows), *set_aside]


def _learnable(kind: type[TextTask], examples: list[Any], *, held_out: bool) -> tuple[list[Any], list[str]]:
    """The examples that can be used, and why the others cannot."""
    set_aside: list[str] = []
    while unusable := kind.unusable_examples(examples, held_out=held_out):
        set_aside += [f"{example.place}: {why}" for example, why in unusable]
        hopeless = {id(example) for example, _ in unusable}
        examples = [example for example in examples if id(example) not in hopeless]
    return examples, set_aside


def tell_of(set_aside: Sequence[object]) -> None:
    """Say on stderr how many rows were set aside, and why the first were."""
    if set_aside:
        note(f"{len(set_aside)} rows were set aside:")
        for row in set_aside[:_SHOWN]:
            note(f"  {row}")
        if len(set_aside) > _SHOWN:
            note("  ...")


def tell_of_cut(report: "PredictReport") -> None:
    """Say on stderr what of the rows the model did not read."""
    if report.num_cut:
        note(f"{report.num_cut} rows were longer than the model reads and lost {report.num_tokens_cut} tokens")
