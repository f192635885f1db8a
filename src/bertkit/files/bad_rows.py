"""Unusable rows: an error, or skipped and recorded with file, line and reason."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.errors import DataError
from bertkit.files.lines import location

CHARACTERS_KEPT = 200
"""Maximum number of characters kept of a skipped row."""

_SHOWN = 3  # reasons of skipped rows in messages


class BadRow(Exception):
    """A row that cannot be used, with the part of the error message after the location."""


class SkippedRow(NamedTuple):
    """A row or sentence that was skipped."""

    path: str
    line: int
    why: str  # the reason: the part of the error message after the location
    text: str  # first characters

    @classmethod
    def of(cls, path: str | Path, line: int, why: str, text: str) -> "SkippedRow":
        """A skipped row with the first characters of its text."""
        return cls(str(path), line, why, text[:CHARACTERS_KEPT].encode("utf-8", "replace").decode())

    def __str__(self) -> str:
        return location(self.path, self.line) + self.why


class BadRows:
    """Handling of unusable rows: each raises an error, or with ``skip`` is recorded.

    Args:
        advice: the end of the error message, for example how rows can be skipped.

    Attributes:
        rows: skipped rows.
        notes: what was guessed or changed while reading, such as the scheme of tags, by path and sentence, with the
            number of cases, or 0 for a fact about the file.
    """

    def __init__(self, *, skip: bool = False, advice: str = "") -> None:
        self.skip, self.advice = skip, advice
        self.rows: list[SkippedRow] = []
        self.notes: dict[tuple[str, str], int] = {}

    def add(self, path: str | Path, line: int, why: str, row: object = "") -> None:
        """Add a row; ``why`` is the part of the error message after the location.

        Raises:
            DataError: unless rows are skipped.
        """
        if not self.skip:
            raise DataError(location(path, line) + why + self.advice)
        self.rows.append(SkippedRow.of(path, line, why, str(row)))

    def usable(
        self, path: str | Path, rows: Iterable[Any], read: Callable[[Any], Any],
        shown: Callable[[Any], object] = lambda row: dict(row.values),
    ) -> Iterator[Any]:  # fmt: skip
        """The examples of rows with ``line``, ``problem`` and ``path``, one at a time.

        Args:
            read: makes the example of a row; it raises a `BadRow` for one that cannot be used.
            shown: what is kept of a skipped row.

        Raises:
            DataError: no row can be used, or a row that cannot, unless these are skipped.
        """
        has_any, num_before = False, len(self.rows)
        for row in rows:
            try:
                if row.problem:
                    raise BadRow(row.problem)
                example = read(row)
            except BadRow as error:
                self.add(row.path or path, row.line, str(error), shown(row))
                continue
            has_any = True
            yield example
        if not has_any:
            skipped = self.rows[num_before:]
            first = (
                f" row that can be used; {len(skipped)} skipped, the first: {skipped[0]}" if skipped else " examples"
            )
            raise DataError(f"{path} holds no{first}")

    def note(self, path: str | Path, sentence: str, count: int = 0) -> None:
        """Add a note; with a count, the sentence continues after the number."""
        self.notes[str(path), sentence] = self.notes.get((str(path), sentence), 0) + count

    def noted(self) -> list[str]:
        """The notes in sentences, each with its file."""
        return [f"{path}: {f'{count:,} ' if count else ''}{what}" for (path, what), count in self.notes.items()]


def skipped_lines(rows: Sequence[object]) -> list[str]:
    """Lines with the number of skipped rows, and the reasons for the first ones; none without any."""
    if not rows:
        return []
    reasons = [f"  {row}" for row in rows[:_SHOWN]] + ["  ..."] * (len(rows) > _SHOWN)
    return [f"{len(rows)} rows were skipped:", *reasons]
