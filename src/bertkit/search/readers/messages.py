"""Readers of e-mail: a message, and an mbox of messages."""

import email
import email.policy
import mailbox
from collections.abc import Iterator
from dataclasses import replace
from email.message import EmailMessage

from bertkit.errors import DataError
from bertkit.search.documents import Document
from bertkit.search.readers.html_text import html_text
from bertkit.search.readers.reading import Reading

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read_message(reading: Reading) -> Iterator[Document]:
    """A message of e-mail under its subject: headers, and the text or else the HTML of its body."""
    message = email.message_from_bytes(reading.data(), policy=email.policy.default)
    yield _document(reading, message, reading.name)


def read_mailbox(reading: Reading) -> Iterator[Document]:
    """The messages of an mbox, each as a document."""
    box = mailbox.mbox(reading.path, create=False)
    try:
        if not len(box) and reading.path.stat().st_size:
            raise DataError("no messages: expected lines that begin with 'From '")
        for number, key in enumerate(box.keys(), start=1):
            try:
                message = email.message_from_bytes(box.get_bytes(key), policy=email.policy.default)
                document = _document(reading, message, f"message {number}")
            except Exception as error:  # the library raises anything for damaged headers
                reading.skip(f"message {number} cannot be read: {error}")
                continue
            yield replace(document, id=f"{reading.name}#{number}", metadata=document.metadata | {"message": number})
    finally:
        box.close()


def _document(reading: Reading, message: EmailMessage, name: str) -> Document:
    lines = [f"{header}: {message[header]}" for header in _HEADERS if message[header]]
    body = message.get_body(("plain", "html"))
    try:
        text = "" if body is None else body.get_content()
    except LookupError as error:  # an unknown charset
        text = body.get_payload(decode=True).decode("utf-8", "replace")
        reading.skip(f"{name}: {error}: read as UTF-8")
    if body is not None and body.get_content_subtype() == "html":
        text = html_text(text).text
    if files := [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]:
        reading.skip(f"{name}: attachments are not read: {', '.join(files)}")
    return reading.document("\n".join(lines) + "\n\n" + text, str(message["Subject"] or ""))
