"""Formats of annotation tools and data hubs; a new one is a file in this folder and a line in `FORMATS`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from bertkit.errors import DataError
from bertkit.files import extension
from bertkit.files.labeled_tables import Table, open_table
from bertkit.tasks.reading.formats.brat import BRAT
from bertkit.tasks.reading.formats.fasttext import FASTTEXT
from bertkit.tasks.reading.formats.format import TABLES, Format, Sample
from bertkit.tasks.reading.formats.label_studio import LABEL_STUDIO, LABEL_STUDIO_MIN
from bertkit.tasks.reading.formats.prodigy import PRODIGY
from bertkit.tasks.reading.formats.spacy_docs import SPACY
from bertkit.tasks.reading.formats.spacy_json import SPACY_JSON
from bertkit.tasks.reading.formats.webanno import WEBANNO
from bertkit.tasks.reading.formats.word_rows import WORD_ROWS

FORMATS: list[Format] = [BRAT, SPACY, SPACY_JSON, WEBANNO, LABEL_STUDIO, LABEL_STUDIO_MIN, PRODIGY, WORD_ROWS, FASTTEXT]
"""Known formats; the first that recognizes a file is used."""


def format_of(path: str | Path) -> Format | None:
    """The format of a file or folder; None for a plain table, CoNLL and standard input."""
    sample = Sample(Path(path))
    return None if str(path) == "-" else next((each for each in FORMATS if each.recognizes(sample)), None)


@contextmanager
def open_rows(
    path: str | Path,
    asked: Collection[str],
    known: Iterable[str],
    shapes: Mapping[int, int] | None = None,
    note: Callable[[str], None] = lambda sentence: None,
) -> Iterator[Table]:
    """The rows of a file in any format: `open_table`, or the table of its format.

    Args:
        asked: names of requested columns; if all are numbers, or columns of a csv or tsv file, it is a plain table.
        note: called with the format that was recognized.

    Raises:
        DataError: as `open_table`, or no rows.
        DependencyError: a format that requires a library.
    """
    sample, form = Sample(Path(path)), None if asked and all(name.isdecimal() for name in asked) else format_of(path)
    if asked and extension(path) in TABLES and {*asked} <= sample.row.keys():
        form = None
    if form is not None:
        note(f"read as {form.name}")
    if form is None:
        with open_table(path, asked, known, shapes) as table:
            yield table
    elif form.rows is None:
        with open_table(path, asked, {*known, *sample.row}, shapes) as table:
            yield form.translated(table)
    else:
        rows = iter(form.rows(Path(path)))
        first = next(rows, None)
        if first is None:
            raise DataError(f"{path} holds no examples")
        yield form.translated(Table(path, (), chain([first], rows)))
