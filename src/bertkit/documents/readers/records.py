"""Readers of files of many documents: rows of tables, and messages of e-mail."""

import email
import email.policy
import mailbox
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bertkit.corpus.texts import read_rows, surrogate_in
from bertkit.documents.document import Document
from bertkit.documents.readers import reading as limits
from bertkit.documents.readers.html_text import html_text
from bertkit.documents.readers.reading import Reading
from bertkit.errors import DataError
from bertkit.files.lines import location

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read_table(reading: Reading) -> Iterator[Document]:
    """The texts of jsonl, csv, tsv and parquet: a document for each row."""
    path = reading.path
    with tempfile.TemporaryDirectory() as folder:
        if reading.kind != "parquet" and not reading.encoding[0].startswith("utf-8"):
            path = Path(folder, path.name)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.writelines(text for _, text in reading.text_parts())
        try:
            for row in read_rows(path, reading.column):
                if why := row.problem or row.invalid or surrogate_in(row.text):
                    reading.skip(location(reading.name, row.line) + why)
                else:
                    yield replace(reading.document(row.text, row=row.line), id=f"{reading.name}#{row.line}")
        except DataError as error:  # which can name a temporary file
            raise DataError(str(error).replace(str(path), reading.name)) from None


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
