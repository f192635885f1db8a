"""The table of the files of an index: what is known of each since it was last read."""

import sqlite3
from dataclasses import dataclass

from bertkit.search.documents import SourceFile
from bertkit.search.passages import PassageOptions


@dataclass(frozen=True)
class StoredSource:
    """The row of a file."""

    size: int
    modified: int
    content: str  # SHA-256; "" if only a part of the file is in the store
    options: str  # see `options_of`
    path: str = ""  # absolute; "" in rows of earlier versions

    @property
    def column(self) -> str:
        """The column of its texts, "" if none was given."""
        return self.options.split(" ", 2)[2]


def options_of(passages: PassageOptions, column: str | None) -> str:
    """The options that a file is read with."""
    return f"{passages.length} {passages.overlap} {column or ''}"


def create_source_table(connection: sqlite3.Connection) -> None:
    """Create the table, or the columns that a table of an earlier version lacks."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS source (name TEXT PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER NOT NULL, "
        "content TEXT NOT NULL, options TEXT NOT NULL, path TEXT NOT NULL DEFAULT '')"
    )
    if "path" not in {name for _, name, *_ in connection.execute("PRAGMA table_info(source)")}:
        connection.execute("ALTER TABLE source ADD COLUMN path TEXT NOT NULL DEFAULT ''")


def stored_sources(connection: sqlite3.Connection) -> dict[str, StoredSource]:
    """The rows by the names of the files; the table may be that of an earlier version."""
    rows = connection.execute("SELECT * FROM source")
    columns = [column for column, *_ in rows.description]
    values = (dict(zip(columns, row, strict=True)) for row in rows)
    return {row.pop("name"): StoredSource(**row) for row in values}


def store_source(connection: sqlite3.Connection, source: SourceFile, content: str, options: str) -> None:
    """Insert or replace the row of a file."""
    connection.execute(
        "REPLACE INTO source (name, size, modified, content, options, path) VALUES (?, ?, ?, ?, ?, ?)",
        (source.name, source.size, source.modified, content, options, source.absolute_path),
    )


def remove_source(connection: sqlite3.Connection, name: str) -> None:
    """Remove the row of a file, if there is one."""
    connection.execute("DELETE FROM source WHERE name = ?", (name,))
