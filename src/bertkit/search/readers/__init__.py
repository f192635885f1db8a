"""Readers of kinds of files: a new kind is a function and a line in `READERS`.

A file of rows or messages gives a document for each; any other file is one document. Text of any size is read in parts,
in little memory; offsets are those of the whole document.
"""

import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bertkit.errors import BertkitError, DataError, DependencyError
from bertkit.search.documents import Document, SkippedFile, SourceFile
from bertkit.search.readers.messages import read_mailbox, read_message
from bertkit.search.readers.packages import read_docx, read_epub, read_opendocument, read_pptx, read_xlsx
from bertkit.search.readers.pages import read_html, read_pdf, read_rtf
from bertkit.search.readers.reading import Reading
from bertkit.search.readers.rows import read_table
from bertkit.search.readers.text import (
    python_headings,
    read_man,
    read_markdown,
    read_notebook,
    read_subtitles,
    read_text,
    rst_headings,
    tex_headings,
    with_headings,
)

_KINDS = {
    read_text: "txt text log json yaml yml toml ini cfg conf xml sql css csh sh bash ps1 bat c h cc cpp hpp cs java kt go "
    "rs js mjs ts jsx tsx vue rb pl pm php lua r jl swift scala hs ml ex erl clj lisp el vim cmake mk diff patch org adoc",
    read_markdown: "md markdown mdx rmd qmd",
    with_headings(rst_headings): "rst rest",
    with_headings(tex_headings): "tex latex ltx",
    with_headings(python_headings): "py pyi",
    read_html: "html htm xhtml",
    read_subtitles: "srt vtt",
    read_man: "man",
    read_notebook: "ipynb",
    read_table: "jsonl csv tsv parquet",
    read_docx: "docx docm",
    read_pptx: "pptx pptm",
    read_xlsx: "xlsx xlsm",
    read_opendocument: "odt ods odp",
    read_epub: "epub",
    read_message: "eml",
    read_mailbox: "mbox",
    read_pdf: "pdf",
    read_rtf: "rtf",
}
READERS: dict[str, Callable[[Reading], Iterator[Document]]] = {
    kind: reader for reader, kinds in _KINDS.items() for kind in kinds.split()
}
"""The function that reads a kind of files; kinds are extensions without the dot, and "text" and "man"."""

_PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
"""Modules with a function open by the extension of packed files."""
_LARGEST_UNPACKED = 1 << 30
_CONTROL = re.compile(rb"[\0-\x06\x0e-\x1a\x1c-\x1f]")


def read_documents(
    source: SourceFile, column: str | None, skipped: list[SkippedFile], *, must_read: bool = False
) -> Iterator[Document]:
    """Read the documents of a file, large ones in parts.

    Args:
        column: key or column of the text of a row; None: "text", or the only one.
        skipped: receives the file, or the parts of it, that cannot be read, and a file that is not empty but has no
            text.
        must_read: raise the error for a library that is not installed; otherwise the file is skipped.

    Raises:
        DependencyError: see ``must_read``.
    """
    has_text, num_skipped, kind = False, len(skipped), source.kind or kind_of(source.name)
    try:
        with _unpacked(source) as path:
            for document in READERS[kind or "text"](Reading(source.name, path, kind, column, skipped)):
                has_text = has_text or (bool(document.text) and not document.text.isspace())
                yield document
        if source.size and not has_text and len(skipped) == num_skipped:
            skipped.append(SkippedFile(source.name, f"no text in its {source.size:,} bytes"))
    except Exception as error:  # the libraries and archives raise anything for a damaged file
        if isinstance(error, DependencyError) and must_read:
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if not isinstance(error, BertkitError | OSError):
            why = f"cannot be read as {kind or 'text'}: {why or type(error).__name__}"
        skipped.append(SkippedFile(source.name, why))


def kind_of(name: str) -> str:
    """The kind of a file by its name, "" for one that is read as text if it is text.

    >>> [kind_of(name) for name in ("a/B.HTML", "c.tar.gz", "notes.txt.gz", "git.1.gz", "README")]
    ['html', '', 'txt', 'man', '']
    """
    path = Path(name)
    suffix = (Path(path.stem) if path.suffix.lower() in _PACKED else path).suffix[1:].lower()
    return "man" if re.fullmatch("[1-9][a-z]*", suffix) else suffix if suffix in READERS else ""


def why_not_text(path: Path) -> str:
    """What a file is that is of no known kind and holds no text; "" for others."""
    if kind_of(path.name) not in ("", "man"):
        return ""
    with _open(path) as file:
        try:
            start = file.read(8192)
        except Exception:  # damaged, which the reader reports
            return ""
    if start and (start.startswith((b"\xff\xfe", b"\xfe\xff")) or not _CONTROL.search(start)):
        return ""
    named = f"of unknown extension {path.suffix!r}" if path.suffix else "without an extension"
    return f"{'binary' if start else 'empty'}, and {named}"


def _open(path: Path) -> IO[bytes]:
    module = _PACKED.get(path.suffix.lower())
    return importlib.import_module(module).open(path) if module else open(path, "rb")


@contextmanager
def _unpacked(source: SourceFile) -> Iterator[Path]:
    """The path of a file, or of a temporary one with the content of a packed file."""
    if source.path.suffix.lower() not in _PACKED:
        yield source.path
        return
    with tempfile.TemporaryDirectory() as folder, _open(source.path) as file:
        path = Path(folder, source.path.stem)
        with open(path, "wb") as unpacked:
            while block := file.read(shutil.COPY_BUFSIZE):
                unpacked.write(block)
                if unpacked.tell() > _LARGEST_UNPACKED:
                    raise DataError(f"it unpacks to more than {_LARGEST_UNPACKED:,} bytes: unpack it first")
        yield path
