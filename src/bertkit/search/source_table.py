"""The table of the files of an index, what is known of each since it was last read, and the passages of each name."""

import json
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bertkit.documents.document import FileState, SourceFile, file_state
from bertkit.documents.passages import PassageOptions


@dataclass(frozen=True)
class StoredSource:
    """The row of a file."""

    size: int  # -1 if some of its passages were deleted or replaced since
    modified: int
    content: str  # SHA-256; "" if only a part of the file is in the store
    options: str  # see `options_of`
    path: str  # absolute

    @property
    def column(self) -> str:
        """The column of its texts, "" if none was given."""
        return self.options.split(" ", 2)[2].partition("\n")[0]

    @property
    def state(self) -> FileState:
        """The state of the file, compared with this row."""
        return file_state(self.path, self.size, self.modified)


def options_of(passages: PassageOptions, column: str | None, kind: str) -> str:
    """The options that a file is read with."""
    return f"{passages.length} {passages.overlap} {column or ''}" + (f"\n{kind}" if kind else "")


def create_source_table(connection: sqlite3.Connection) -> None:
    """Create the table, if it is missing, and the trigger by which deleted passages of a file, or replaced ones, are
    read again."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS source (name TEXT PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER NOT NULL, "
        "content TEXT NOT NULL, options TEXT NOT NULL, path TEXT NOT NULL)"
    )
    named = "rtrim(OLD.id, '0123456789abcdef.')"  # the name and #, see `PassageRecords`
    connection.execute(
        "CREATE TRIGGER IF NOT EXISTS source_lacks_passage AFTER DELETE ON record BEGIN "
        f"UPDATE source SET size = -1 WHERE name = substr({named}, 1, length({named}) - 1); END"
    )


def stored_sources(connection: sqlite3.Connection, names: Collection[str] | None = None) -> dict[str, StoredSource]:
    """The rows by the names of the files; None: of all."""
    listed = "" if names is None else "WHERE name IN (SELECT value FROM json_each(?))"
    values = [] if names is None else [json.dumps([*names])]
    rows = connection.execute(f"SELECT name, size, modified, content, options, path FROM source {listed}", values)
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


def passage_ids(connection: sqlite3.Connection, name: str) -> Iterator[str]:
    """The ids of the passages of a file or document, which are its name, # and a digest."""
    rows = connection.execute(
        "SELECT id FROM record WHERE id > ? || '#' AND id < ? || '$' AND instr(substr(id, length(?) + 2), '#') = 0",
        (name, name, name),
    )
    return (id for (id,) in rows)


def named_documents(connection: sqlite3.Connection, names: Collection[str]) -> set[str]:
    """Those of some names that are ids of documents, but for those whose source is a file of that name."""
    rows = connection.execute(
        "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM record WHERE document_id = value "
        "AND json_extract(metadata, '$.source') IS NOT value)",
        [json.dumps([*names])],
    )
    return {name for (name,) in rows}
