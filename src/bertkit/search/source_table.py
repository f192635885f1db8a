"""The table of the files of an index: what is known of each since it was last read."""

import sqlite3
from dataclasses import dataclass

from bertkit.documents.document import SourceFile
from bertkit.documents.passages import PassageOptions


@dataclass(frozen=True)
class StoredSource:
    """The row of a file."""

    size: int
    modified: int
    content: str  # SHA-256; "" if only a part of the file is in the store
    options: str  # see `options_of`
    path: str  # absolute

    @property
    def column(self) -> str:
        """The column of its texts, "" if none was given."""
        return self.options.split(" ", 2)[2].partition("\n")[0]


def options_of(passages: PassageOptions, column: str | None, kind: str) -> str:
    """The options that a file is read with."""
    return f"{passages.length} {passages.overlap} {column or ''}" + (f"\n{kind}" if kind else "")


def create_source_table(connection: sqlite3.Connection) -> None:
    """Create the table, if it is missing."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS source (name TEXT PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER NOT NULL, "
        "content TEXT NOT NULL, options TEXT NOT NULL, path TEXT NOT NULL)"
    )


def stored_sources(connection: sqlite3.Connection) -> dict[str, StoredSource]:
    """The rows by the names of the files."""
    rows = connection.execute("SELECT name, size, modified, content, options, path FROM source")
    return {name: StoredSource(*row) for name, *row in rows}


def store_source(connection: sqlite3.Connection, source: SourceFile, content: str, options: str) -> None:
    """Insert or replace the row of a file."""
    connection.execute(
        "REPLACE INTO source (name, size, modified, content, options, path) VALUES (?, ?, ?, ?, ?, ?)",
        (source.name, source.size, source.modified, content, options, source.absolute_path),
    )


def remove_source(connection: sqlite3.Connection, name: str) -> None:
    """Remove the row of a file, if there is one."""
    connection.execute("DELETE FROM source WHERE name = ?", (name,))
