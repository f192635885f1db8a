"""Reader of pairs of source and target: csv, tsv, jsonl and parquet files."""

from collections.abc import Iterator, Mapping

from bertkit.errors import DataError
from bertkit.files import BadRow, BadRows, location
from bertkit.files.labeled_tables import check_roles, open_table
from bertkit.files.tables import Row
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import SequenceExample

_ROLES = ("source", "target")
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "source": ("source", "src", "input", "text", "1"),
    "target": ("target", "tgt", "output", "summary", "2"),
}


def read_pairs(file: ExampleFile) -> Iterator[SequenceExample]:
    """Read the pairs of a file, one at a time: without a header and `ExampleFile.columns` of "source" and "target",
    columns 1 and 2.

    Raises:
        DataError: no such file, fewer than two columns, a row without source or target, or no row at all.
        UsageError: an unknown role.
    """
    path, columns, bad_rows = file.path, file.columns, file.bad_rows or BadRows()
    check_roles(columns, _ROLES)
    known = {name for names in _KNOWN.values() for name in names}
    with open_table(path, list(columns.values()), known) as table:
        if 0 < len(table.names) < 2:
            raise DataError(f"{path} has one column ({table.names[0]}): expected a source and a target on each row")
        names = {role: table.require(role, columns.get(role), _KNOWN[role]) for role in _ROLES}

        def pair(row: Row) -> SequenceExample:
            values = {role: row.values.get(names[role]) for role in _ROLES}
            for role, text in values.items():
                if not isinstance(text, str) or not text.strip():
                    raise BadRow(f": its {role} is empty")
            return SequenceExample(str(values["target"]), str(values["source"]), location(path, row.line))

        yield from bad_rows.usable(path, table.rows, pair)
