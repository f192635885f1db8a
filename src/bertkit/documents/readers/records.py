"""Readers of files of many documents: rows of tables, and messages of e-mail."""

import email
import email.policy
import logging
import mailbox
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertkit.corpus.texts import surrogate_in, text_column, text_of
from bertkit.documents.document import Document
from bertkit.documents.metadata import Value, check_key, stored_value
from bertkit.documents.readers import reading as limits
from bertkit.documents.readers.html_text import html_text
from bertkit.documents.readers.reading import Reading
from bertkit.errors import DataError, UsageError
from bertkit.files.lines import location, open_lines
from bertkit.files.tables import Row, delimited_rows, json_rows, named_twice, parquet_names, parquet_rows

_ROWS_OF_SAMPLE = 100
"""Number of rows that the columns of texts and of numbers are recognized by."""
_NUMBER = re.compile(r"(?:-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?)?", re.ASCII)
_LONGEST_VALUE = 1000
"""Maximum number of characters of a metadata value that is a column of a table."""
_OF_BERTKIT = re.compile(r"^(?:source|row|context)_*$")
"""Columns that get another name as metadata, because each row has these keys."""
_LOG = logging.getLogger("bertkit.documents")
_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read_table(reading: Reading) -> Iterator[Document]:
    """The texts of jsonl, csv, tsv and parquet: a document for each row, with the other columns as metadata."""
    path, left_out = reading.path, set[str]()
    with tempfile.TemporaryDirectory() as folder:
        if reading.kind != "parquet" and not reading.encoding[0].startswith("utf-8"):
            path = Path(folder, path.name)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.writelines(text for _, text in reading.text_parts())
        try:
            with _rows(path, reading.kind) as (header, rows):
                sample = list(islice(rows, _ROWS_OF_SAMPLE))
                names = list(header or dict.fromkeys(name for row in sample for name in row.values))
                columns = _columns(reading, names, sample) if names or reading.kind != "jsonl" else ["text"]
                numbers = _columns_of_numbers(names, sample) if reading.kind in ("csv", "tsv") else ()
                for row in chain(sample, rows):
                    text, problem = _text(row.values, columns)
                    if why := row.problem or row.invalid or problem or surrogate_in(text):
                        reading.skip(location(reading.name, row.line) + why)
                        continue
                    values = {name: value for name, value in row.values.items() if name not in columns}
                    values |= {name: _number(values[name]) for name in numbers if name in values}
                    document = reading.document(text, line=0 if reading.kind == "parquet" else row.line, row=row.line)
                    metadata = {**document.metadata, **_metadata(values, left_out)}
                    yield replace(document, id=f"{reading.name}#{row.line}", metadata=metadata)
        except DataError as error:  # which can name a temporary file
            raise DataError(str(error).replace(str(path), reading.name)) from None
    if left_out:
        _LOG.warning("%s: not stored as metadata: %s", reading.name, ", ".join(sorted(left_out)))


@contextmanager
def _rows(path: Path, kind: str) -> Iterator[tuple[tuple[str, ...], Iterator[Row]]]:
    """The columns of a table, () for those of jsonl, and its rows."""
    if kind == "parquet":
        names = parquet_names(path)
        yield names, parquet_rows(path, names)
        return
    with open_lines(path) as lines:
        yield ((), json_rows(lines)) if kind == "jsonl" else delimited_rows(path, lines)


def _columns(reading: Reading, names: Sequence[str], sample: Sequence[Row]) -> list[str]:
    """The columns of the texts: of those that are given, the ones that the table has; else "text", the only column, or
    a guess, which is logged.

    Raises:
        DataError: none of these.
    """
    option = reading.column or ""
    parts = [option] if option in names else option.split(",")
    columns = [name for name in parts if name and name in names]
    name, problem = text_column(names, columns[0] if columns else option or None)
    if problem and not option and not named_twice(names) and (guess := _column_of_sentences(names, sample)):
        _LOG.warning("%s: texts of the column %r, which is a guess: --column names another", reading.name, guess)
        return [guess]
    if problem:
        raise DataError(f"{reading.name}{problem}")
    if 0 < len(columns) < len(parts):
        lacking = ", ".join(one for one in parts if one not in names)
        _LOG.warning("%s: no column %s; the texts are in %s", reading.name, lacking, ", ".join(columns))
    return columns or [name]


def _column_of_sentences(names: Iterable[str], sample: Sequence[Row]) -> str:
    """The column with five words or more in a value, on average, and three times as many as any other; "" without."""
    values = {name: [row.values[name] for row in sample if isinstance(row.values.get(name), str)] for name in names}
    means = [(sum(len(one.split()) for one in texts) / len(texts), name) for name, texts in values.items() if texts]
    (most, name), (second, _) = sorted([*means, (0, ""), (0, "")], reverse=True)[:2]
    return name if most >= max(5, 3 * second) else ""


def _text(values: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, str]:
    """The texts of a row, with blank lines between them; or "" and a problem as in `TextRow`."""
    present = [name for name in columns if values.get(name) is not None] or [name for name in columns if name in values]
    if not present:
        return "", text_column(list(values), columns[0])[1]
    texts = [text_of(values, name) for name in present]
    return "\n\n".join(text for text, _ in texts if text), next((problem for _, problem in texts if problem), "")


def _columns_of_numbers(names: Iterable[str], sample: Sequence[Row]) -> list[str]:
    """The columns whose values in some rows are numbers, as they are written without leading zeros."""
    return [name for name in names if all(_NUMBER.fullmatch(row.values.get(name, "")) for row in sample)]


def _number(written: str) -> str | float:
    is_number = written and _NUMBER.fullmatch(written)
    return (float(written) if "." in written else int(written)) if is_number else written


def _metadata(values: Mapping[str, Any], left_out: set[str]) -> dict[str, Value]:
    """Columns as metadata, without empty values.

    Args:
        left_out: receives the columns of values that cannot be stored, or are too long.
    """
    metadata: dict[str, Value] = {}
    for name, value in values.items():
        if not name or value is None or value == "" or value != value:  # NaN
            continue
        with suppress(UsageError):
            check_key(name)
            stored = stored_value(name, value)
            if len(str(stored)) <= _LONGEST_VALUE:
                metadata[_OF_BERTKIT.sub(r"\g<0>_", name)] = stored
                continue
        left_out.add(name.encode(errors="backslashreplace").decode())  # half a character cannot be printed
    return metadata


def read_mailbox(reading: Reading) -> Iterator[Document]:
    """The messages of an mbox."""
    box = mailbox.mbox(reading.path, create=False)
    try:
        if not len(box) and reading.path.stat().st_size:
            raise DataError("no messages: expected lines that begin with 'From '")
        for number, key in enumerate(box.keys(), start=1):
            try:
                if len(data := box.get_file(key).read(limits.LARGEST_WHOLE + 1)) > limits.LARGEST_WHOLE:
                    raise DataError(f"it has more than {limits.LARGEST_WHOLE:,} bytes")
                message = _message(reading, data, f"message {number}")
            except Exception as error:  # the library raises anything for damaged headers
                reading.skip(f"message {number} cannot be read: {error}")
            else:
                yield replace(message, id=f"{reading.name}#{number}")
    finally:
        box.close()


def read_message(reading: Reading) -> Iterator[Document]:
    """A message of e-mail."""
    yield _message(reading, reading.data(), "the message")


def _message(reading: Reading, data: bytes, name: str) -> Document:
    """The headers of a message, and the text of its body, or else its HTML."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    text = "".join(f"{header}: {message[header]}\n" for header in _HEADERS if message[header]) + "\n"
    if body := message.get_body(("plain", "html")):
        try:
            content = body.get_content()
        except LookupError as error:
            content = ""
            reading.skip(f"{name} has an {error}: its text is not read")
        text += html_text(content).text if body.get_content_subtype() == "html" else content
    if files := [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]:
        reading.skip(f"attachments of {name} are not read: {', '.join(files)}")
    return reading.document(text, str(message["Subject"] or ""))
