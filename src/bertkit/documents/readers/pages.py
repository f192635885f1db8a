"""Readers of HTML, of pdf and of rich text."""

import logging
from collections.abc import Iterator

from bertkit.documents.document import Document
from bertkit.documents.readers.html_text import html_text
from bertkit.documents.readers.reading import Reading
from bertkit.errors import DataError, required


def read_html(reading: Reading) -> Iterator[Document]:
    """The visible text of a page."""
    page = html_text(reading.text())
    yield reading.document(page.text, page.title, tuple(page.headings))


def read_pdf(reading: Reading) -> Iterator[Document]:
    """The pages of a pdf file, which the metadata number."""
    reading.data()  # of no more than the largest size
    pypdf = required("pypdf", "pdf needs pypdf", "documents")
    logging.getLogger("pypdf").addHandler(logging.NullHandler())  # else its remarks, which name no file, are printed
    reader = pypdf.PdfReader(reading.path)
    title = _whole_characters(str(reader.metadata.title or "")) if reader.metadata else ""
    offset, num_pages, has_text = 0, 0, False
    for num_pages, page in enumerate(reader.pages, start=1):
        text = _whole_characters(page.extract_text()) + "\n\n"
        has_text = has_text or not text.isspace()
        yield reading.document(text, title, offset=offset, page=num_pages)
        offset += len(text)
    if num_pages and not has_text:
        raise DataError(f"no text in its {num_pages:,} pages: if they are pictures of text, recognize it (ocrmypdf)")


def _whole_characters(text: str) -> str:
    """A text with U+FFFD for half of a surrogate pair, which pypdf returns for characters that it cannot map."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_rtf(reading: Reading) -> Iterator[Document]:
    """Rich text."""
    striprtf = required("striprtf.striprtf", "rtf needs striprtf", "documents")
    yield reading.document(striprtf.rtf_to_text(reading.data().decode("cp1252", "replace"), errors="replace"))
