"""Reader of tables: a document for each row."""

from collections.abc import Iterator

from bertkit.corpus.texts import read_rows
from bertkit.errors import DataError
from bertkit.files.lines import location
from bertkit.search.documents import Document, SkippedFile
from bertkit.search.readers.reading import Reading


def read_table(reading: Reading) -> Iterator[Document]:
    """The texts of jsonl, csv, tsv and parquet."""
    try:
        for row in read_rows(reading.path, reading.column):
            if why := row.problem or row.invalid or _half_character(row.text):
                why = location(reading.name, row.line) + why
                reading.skipped.append(SkippedFile(reading.name, why, is_part=True))
            else:
                metadata = {"source": reading.name, "row": row.line}
                yield Document(f"{reading.name}#{row.line}", row.text, metadata=metadata)
    except DataError as error:  # of a temporary file, for a packed one
        raise DataError(str(error).replace(str(reading.path), reading.name)) from None


def _half_character(text: str) -> str:
    """The problem with a text that has half of a surrogate pair, as a row of JSON can; "" if it has none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f": character {error.start} of the text is half of a surrogate pair, which is not valid text: write the "
            "row again"
        )
    return ""
