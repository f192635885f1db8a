"""Readers of training files: pairs of source and target, and texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import DataError
from bertkit.files import BadRows, location
from bertkit.files.labeled_tables import check_roles, open_table
from bertkit.tasks.reading.texts import read_labeled_texts

_ROLES = ("source", "target")
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "source": ("source", "src", "input", "text", "1"),
    "target": ("target", "tgt", "output", "summary", "2"),
}


@dataclass(frozen=True)
class SequenceExample:
    """A target with its source; texts for a language model have no source."""

    target: str
    source: str | None = None
    location: str = ""  # file and line


def read_pairs(
    path: str | Path, columns: Mapping[str, str] = {}, bad_rows: BadRows | None = None
) -> list[SequenceExample]:
    """Read the pairs of a csv, tsv, jsonl or parquet file.

    Args:
        columns: names by role, "source" and "target", if they are not recognized; without a header columns 1 and 2.
        bad_rows: receives unusable rows; None: such a row is an error.

    Raises:
        DataError: no such file, fewer than two columns, a row without source or target, or no row at all.
        UsageError: an unknown role.
    """
    bad_rows = bad_rows or BadRows()
    check_roles(columns, _ROLES)
    examples = []
    known = {name for names in _KNOWN.values() for name in names}
    with open_table(path, list(columns.values()), known) as table:
        if 0 < len(table.names) < 2:
            raise DataError(f"{path} has one column ({table.names[0]}): expected a source and a target on each row")
        names = {role: table.require(role, columns.get(role), _KNOWN[role]) for role in _ROLES}
        for row in table.rows:
            values = {role: row.values.get(names[role]) for role in _ROLES}
            problem = row.problem or next(
                (f": its {role} is empty" for role in _ROLES if not _is_text(values[role])), ""
            )
            if problem:
                bad_rows.add(path, row.line, problem, dict(row.values))
                continue
            examples.append(SequenceExample(str(values["target"]), str(values["source"]), location(path, row.line)))
    if not examples:
        raise bad_rows.none_left(path)
    return examples


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def read_texts(
    path: str | Path, columns: Mapping[str, str] = {}, bad_rows: BadRows | None = None
) -> list[SequenceExample]:
    """Read the texts of a file: lines of a txt file, or a column of a table.

    Raises:
        DataError: no such file, no column for the text, or no text at all.
    """
    texts = read_labeled_texts(path, None, columns=columns, bad_rows=bad_rows)
    examples = [SequenceExample(one.text, location=one.location) for one in texts if one.text.strip()]
    if not examples:
        raise DataError(f"{path} has no text: expected at least one, one on each line")
    return examples
