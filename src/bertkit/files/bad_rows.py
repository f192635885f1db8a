"""Rows that cannot be used: an error, or skipped and recorded with file, line and reason."""

from pathlib import Path
from typing import NamedTuple

from bertkit.errors import DataError
from bertkit.files.lines import location

CHARACTERS_KEPT = 200
"""Of the text of a skipped row."""


class SkippedRow(NamedTuple):
    """A row, or a sentence, that could not be read."""

    path: str
    line: int
    why: str  # what an error says after the location
    text: str  # how it begins

    @classmethod
    def of(cls, path: str | Path, line: int, why: str, text: str) -> "SkippedRow":
        """With as much of the text as is kept."""
        return cls(str(path), line, why, text[:CHARACTERS_KEPT].encode("utf-8", "replace").decode())

    def __str__(self) -> str:
        return location(self.path, self.line) + self.why


class BadRows:
    """Rows that cannot be used: each raises an error, or with ``skip`` is recorded.

    Attributes:
        rows: those skipped.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self.rows: list[SkippedRow] = []

    def add(self, path: str | Path, line: int, why: str, row: object = "") -> None:
        """Add a row; ``why`` is what an error says after the location.

        Raises:
            DataError: unless rows are skipped.
        """
        if not self.skip:
            raise DataError(location(path, line) + why)
        self.rows.append(SkippedRow.of(path, line, why, str(row)))

    def none_left(self, path: str | Path) -> DataError:
        """The error for a file without a single usable row."""
        of_path = [row for row in self.rows if row.path == str(path)]
        if of_path:
            return DataError(f"{path} holds no row that can be used; {len(of_path)} skipped, the first: {of_path[0]}")
        return DataError(f"{path} holds no examples")
