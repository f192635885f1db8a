"""Labeled example files on the command line: column roles, and bad rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertkit.cli.output import note
from bertkit.errors import UsageError
from bertkit.files import BadRows, skipped_lines

if TYPE_CHECKING:
    from bertkit.inference import InferenceReport


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


def note_reading(bad_rows: BadRows) -> None:
    """Print to stderr what was guessed or changed while reading."""
    for sentence in bad_rows.noted():
        note(sentence)


def note_skipped(rows: Sequence[object]) -> None:
    """Print the number of skipped rows to stderr, with reasons for the first ones."""
    for line in skipped_lines(rows):
        note(line)


def note_cut(report: "InferenceReport") -> None:
    """Print to stderr how many rows were cut to the model's maximum length, and how many tokens are unknown."""
    if report.num_texts_cut:
        note(f"{report.num_texts_cut} rows exceeded the model's maximum length and lost {report.num_tokens_cut} tokens")
    if report.num_unknown:
        empty = f"; {report.num_empty} texts have no known token" if report.num_empty else ""
        note(f"{report.num_unknown} of {report.num_tokens} tokens are unknown to the model ([UNK]){empty}")
