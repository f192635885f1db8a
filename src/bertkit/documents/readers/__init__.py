"""Readers of kinds of files: a new kind is a function, and a word in `_KINDS`.

A file of rows or messages gives a document for each; any other file is one document. Plain text and Markdown of any
size are read in parts, in little memory; offsets are those of the whole document.
"""

import importlib
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bertkit.documents.document import Document, SkippedFile, SourceFile
from bertkit.documents.readers import packages, pages, records, text
from bertkit.documents.readers.reading import Reading
from bertkit.errors import BertkitError, DataError, DependencyError

Reader = Callable[[Reading], Iterator[Document]]

_KINDS: dict[Reader, str] = {
    text.read_text: "text txt log json yaml yml toml ini xml sql css js ts sh c h cc cpp cs java go rs rb php pl pm",
    text.read_markdown: "md markdown mdx rmd qmd",
    text.with_headings(text.rst_headings): "rst",
    text.with_headings(text.tex_headings): "tex",
    text.with_headings(text.python_headings): "py pyi",
    text.read_subtitles: "srt vtt",
    text.read_man: "man",
    text.read_notebook: "ipynb",
    pages.read_html: "html htm xhtml",
    pages.read_pdf: "pdf",
    pages.read_rtf: "rtf",
    packages.read_docx: "docx docm",
    packages.read_pptx: "pptx pptm",
    packages.read_xlsx: "xlsx xlsm",
    packages.read_opendocument: "odt ods odp",
    packages.read_epub: "epub",
    records.read_message: "eml",
    records.read_mailbox: "mbox",
    records.read_table: "jsonl csv tsv parquet",
}
READERS = {kind: reader for reader, kinds in _KINDS.items() for kind in kinds.split()}
"""The reader of each kind of files, which is an extension without the dot, or "text" or "man"."""
KINDS_TO_CHOOSE = sorted(kind for kind, reader in READERS.items() if reader is not records.read_table)
"""Kinds that a file of another name can be read as."""

_PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
"""Modules that open packed files, by extension."""
_LARGEST_UNPACKED = 1 << 30
"""Maximum size in bytes of what a packed file unpacks to."""
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
    has_text, num_skipped, kind = False, len(skipped), source.kind or kind_of(source.name) or "text"
    try:
        with _unpacked(source) as path:
            for document in READERS[kind](Reading(source.name, path, kind, column, skipped)):
                has_text = has_text or (bool(document.text) and not document.text.isspace())
                yield document
        if source.size and not has_text and len(skipped) == num_skipped:
            raise DataError(f"no text in its {source.size:,} bytes")
    except Exception as error:  # libraries raise anything for a damaged file
        if must_read and isinstance(error, DependencyError):
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        is_clear = isinstance(error, BertkitError | OSError)
        skipped.append(SkippedFile(source.name, why if is_clear else f"cannot be read as {kind}: {why}"))


def kind_of(name: str) -> str:
    """The kind of a file by its name, "" for one that is read as text if it is text.

    >>> [kind_of(name) for name in ("a/B.HTML", "c.tar.gz", "notes.txt.gz", "git.1.gz", "README")]
    ['html', '', 'txt', 'man', '']
    """
    path = Path(name.lower())
    suffix = (Path(path.stem) if path.suffix in _PACKED else path).suffix[1:]
    return "man" if re.fullmatch("[1-9][a-z]*", suffix) else suffix if suffix in READERS else ""


def why_not_text(path: Path) -> str:
    """What a file is whose name does not say that it can be read, and that holds no text; "" for others."""
    if kind_of(path.name) not in ("", "man"):
        return ""
    with _open(path) as file:
        try:
            start = file.read(8192)
        except Exception:  # damaged: the reader reports it
            return ""
    if start and (start.startswith((b"\xff\xfe", b"\xfe\xff")) or not _CONTROL.search(start)):
        return ""
    named = f"of unknown extension {path.suffix!r}" if path.suffix else "without an extension"
    return f"{'binary' if start else 'empty'}, and {named}"


def _open(path: Path) -> IO[bytes]:
    return importlib.import_module(_PACKED.get(path.suffix.lower(), "io")).open(path, "rb")


@contextmanager
def _unpacked(source: SourceFile) -> Iterator[Path]:
    """The path of a file, or of a temporary one with the content of a packed file."""
    if source.path.suffix.lower() not in _PACKED:
        yield source.path
        return
    with tempfile.TemporaryDirectory() as folder, _open(source.path) as file:
        path = Path(folder, source.path.stem)
        with open(path, "wb") as unpacked:
            while block := file.read(1 << 20):
                if unpacked.tell() + len(block) > _LARGEST_UNPACKED:
                    raise DataError(f"it unpacks to more than {_LARGEST_UNPACKED:,} bytes: unpack it first")
                unpacked.write(block)
        yield path
