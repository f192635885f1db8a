"""Readers of HTML, of pdf and of rich text."""

import logging
import re
from collections.abc import Iterator

from bertkit.documents.document import Document
from bertkit.documents.readers.html_text import html_text
from bertkit.documents.readers.reading import Reading
from bertkit.errors import DataError, required

_WORD = re.compile(r"[^\W\d_]+")
_DIVIDED = re.compile(rf"({_WORD.pattern})[-\u00ad\u2010] ?\n({_WORD.pattern})")  # at the end of a line


def read_html(reading: Reading) -> Iterator[Document]:
    """The visible text of a page."""
    page = html_text(reading.text())
    yield reading.document(page.text, page.title, tuple(page.headings))


def read_pdf(reading: Reading) -> Iterator[Document]:
    """The pages of a pdf file, which the metadata number.

    A word that is divided at the end of a line is joined if the file holds it whole, too: other hyphens may be part of
    the word.
    """
    reading.data()  # of no more than the largest size
    pypdf = required("pypdf", "pdf needs pypdf", "documents")
    logging.getLogger("pypdf").addHandler(logging.NullHandler())  # else its remarks, which name no file, are printed
    reader = pypdf.PdfReader(reading.path)
    title = _whole_characters(str(reader.metadata.title or "")) if reader.metadata else ""
    pages = [_whole_characters(page.extract_text()) + "\n\n" for page in reader.pages]
    words, offset = {word.lower() for page in pages for word in _WORD.findall(page)}, 0
    for number, page in enumerate(pages, start=1):
        text = _DIVIDED.sub(lambda word: word[1] + word[2] if (word[1] + word[2]).lower() in words else word[0], page)
        yield reading.document(text, title, offset=offset, page=number)
        offset += len(text)
    if pages and not "".join(pages).strip():
        raise DataError(f"no text in its {len(pages):,} pages: if they are pictures of text, recognize it (ocrmypdf)")


def _whole_characters(text: str) -> str:
    """A text with U+FFFD for half of a surrogate pair, which pypdf returns for characters that it cannot map."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_rtf(reading: Reading) -> Iterator[Document]:
    """Rich text."""
    striprtf = required("striprtf.striprtf", "rtf needs striprtf", "documents")
    yield reading.document(striprtf.rtf_to_text(reading.data().decode("cp1252", "replace"), errors="replace"))
