"""Files to documents: txt, md, html, jsonl, csv, tsv, parquet and pdf; unreadable files and rows are listed with
reasons.

A file of rows gives a document per row; any other file is one document. Large txt and md files are read in parts, so
that a file of any size takes little memory; offsets are those of the whole document.
"""

import hashlib
import logging
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.corpus.texts import read_rows
from bertkit.errors import BertkitError, DataError, DependencyError, UsageError
from bertkit.files.lines import TO_UTF8, extension, location, other_encoding
from bertkit.search.filters import Scalar, check_id
from bertkit.search.html_text import html_text

TEXT_FORMATS, ROW_FORMATS = (".txt", ".md", ".html", ".htm", ".pdf"), (".jsonl", ".csv", ".tsv", ".parquet")
FORMATS = (*TEXT_FORMATS, *ROW_FORMATS)
_PART_BYTES = 1 << 20
_LARGEST_WHOLE = 1 << 26
"""Maximum size in bytes of an html or pdf file, as these are read at once."""
_MARKDOWN_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*)$", re.MULTILINE)
_FENCE = re.compile(r"^(`{3,}(?=[^`\n]*$)|~{3,}).*?(^\1[`~]*[ \t]*\r?$|\Z)", re.MULTILINE | re.DOTALL)

Heading = tuple[int, int, str]
"""First character, level from 1, and heading."""


@dataclass(frozen=True)
class Document:
    """A text to index."""

    id: str
    text: str
    title: str = ""  # prepended to each passage for embedding
    headings: tuple[Heading, ...] = ()  # in order; of earlier parts, those above this text, at negative characters
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    offset: int = 0  # offset of the text in the document, for documents in parts

    def __post_init__(self) -> None:
        check_id("document id", self.id)
        for name, text in (("text", self.text), ("title", self.title)):
            if not isinstance(text, str):
                raise UsageError(f"document {self.id!r:.60}: {name} is {type(text).__name__}, expected str")
        if not isinstance(self.metadata, Mapping):
            raise UsageError(f"document {self.id!r:.60}: metadata is {type(self.metadata).__name__}, expected a dict")


@dataclass(frozen=True)
class SkippedFile:
    """A file, or a part of it, that was skipped."""

    path: str
    why: str
    is_part: bool = False  # a row or a passage: the rest of the file is read
    is_other_format: bool = False  # a file with an unknown extension


@dataclass(frozen=True)
class SourceFile:
    """A file to read."""

    name: str  # document name: the path as given, with "/"
    path: Path
    size: int
    modified: int  # nanoseconds

    @property
    def absolute_path(self) -> str:
        """The path from the root; links in it are kept."""
        return os.path.abspath(self.path)


def find_sources(paths: Iterable[str | Path], skipped: list[SkippedFile]) -> list[SourceFile]:
    """The files at these paths, and all files below the folders there, except hidden ones; each once, under the first
    path to it.

    Args:
        skipped: receives files whose extension is not in FORMATS, or whose name is not UTF-8; pipes, sockets and
            devices; and folders that cannot be read, or are links.

    Raises:
        DataError: no such file or folder.
    """
    files: dict[str, SourceFile] = {}  # by absolute path
    for path in paths:
        if not str(path):
            raise DataError("a path is empty: expected a file or folder, such as . for this one")
        given = Path(path)
        try:
            if not given.exists():
                raise DataError(f"{given}: no such file or folder")
            inside = _files_below(given, skipped) if given.is_dir() else [given]
        except OSError as error:
            raise DataError(f"{given}: {error.strerror}") from None
        for path in inside:
            name = name_of(path)
            try:
                state = path.stat()
            except OSError as error:
                skipped.append(SkippedFile(name, error.strerror or str(error)))
                continue
            if not stat.S_ISREG(state.st_mode):
                skipped.append(SkippedFile(name, "a pipe, socket or device, not a file"))
            elif extension(path) not in FORMATS:
                skipped.append(SkippedFile(name, f"unknown extension {path.suffix!r}", is_other_format=True))
            elif name != path.as_posix():
                skipped.append(SkippedFile(name, "its name is not UTF-8: rename the file"))
            else:
                source = SourceFile(name, path, state.st_size, state.st_mtime_ns)
                files.setdefault(source.absolute_path, source)
    return list(files.values())


def _files_below(folder: Path, skipped: list[SkippedFile]) -> list[Path]:
    """All files below a folder except hidden ones, sorted."""

    def unreadable(error: OSError) -> None:
        skipped.append(SkippedFile(name_of(Path(error.filename)), f"the folder cannot be read: {error.strerror}"))

    paths: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(parent, name) for name in folders):
            if os.path.islink(path):
                skipped.append(SkippedFile(name_of(path), "links to folders are not followed: give the folder itself"))
        paths += [Path(parent, name) for name in files if not name.startswith(".")]
    return sorted(paths)


def name_of(path: Path) -> str:
    """The name of a file in the store and in reports; characters that are not UTF-8 are escaped."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def is_inside(name: str, folder: Path) -> bool:
    """Whether `find_sources` gives this name to a file in a folder."""
    path = Path(name)
    return path.is_relative_to(folder) and not any(part.startswith(".") for part in path.relative_to(folder).parts)


def content_of(path: Path) -> str:
    """SHA-256 of the bytes of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_documents(source: SourceFile, column: str | None, skipped: list[SkippedFile]) -> Iterator[Document]:
    """Read the documents of a file, large ones in parts.

    Args:
        column: key or column of the text of a row; None: "text", or the only one.
        skipped: receives the file, or its rows, that cannot be read, and a file that is not empty but has no text.
    """
    has_text, num_skipped = False, len(skipped)
    for document in _documents(source, column, skipped):
        has_text = has_text or (bool(document.text) and not document.text.isspace())
        yield document
    if source.size and not has_text and len(skipped) == num_skipped:
        skipped.append(SkippedFile(source.name, f"no text in its {source.size:,} bytes"))


def _documents(source: SourceFile, column: str | None, skipped: list[SkippedFile]) -> Iterator[Document]:
    kind = extension(source.path)
    metadata: dict[str, Scalar] = {"source": source.name}
    try:
        if kind in ROW_FORMATS:
            for row in read_rows(source.path, column):
                if why := row.problem or row.invalid or _half_character(row.text):
                    skipped.append(SkippedFile(source.name, location(source.name, row.line) + why, is_part=True))
                else:
                    yield Document(f"{source.name}#{row.line}", row.text, metadata=metadata | {"row": row.line})
        elif kind == ".pdf":
            yield from _pdf(source, metadata)
        elif kind in (".html", ".htm"):
            page = html_text(_whole_text(source))
            headings = tuple(page.headings)
            yield Document(source.name, page.text, page.title, headings, metadata)
        else:
            parts = _text_parts(source.path)
            read = _with_headings(parts) if kind == ".md" else ((offset, text, ()) for offset, text in parts)
            for offset, text, headings in read:
                yield Document(source.name, text, "", headings, metadata, offset)
    except DependencyError:
        raise
    except (BertkitError, OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, UnicodeDecodeError):
            why = f"not UTF-8 text: {TO_UTF8}"
        skipped.append(SkippedFile(source.name, why or type(error).__name__))


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


def path_to(heading: Heading, above: Sequence[Heading]) -> list[Heading]:
    """A heading and those that it is under, given those above it.

    >>> path_to((9, 2, "Plums"), [(0, 1, "Fruit"), (5, 2, "Apples")])
    [(0, 1, 'Fruit'), (9, 2, 'Plums')]
    """
    return [*(one for one in above if one[1] < heading[1]), heading]


def markdown_headings(text: str) -> tuple[Heading, ...]:
    """The headings of Markdown: (first character, level, heading); not in code blocks.

    >>> markdown_headings("# One\\n\\n~~~\\n# no\\n~~~\\n## Two ##\\n")
    ((0, 1, 'One'), (20, 2, 'Two'))
    """
    code = [match.span() for match in _FENCE.finditer(text)]
    starts = [start for start, _ in code]
    headings = []
    for match in _MARKDOWN_HEADING.finditer(text):
        heading = match[2].rstrip(" \t\r").rstrip("#").rstrip(" \t")
        before = bisect_right(starts, match.start())  # code blocks that begin before it
        if heading and not (before and match.start() < code[before - 1][1]):
            headings.append((match.start(), len(match[1]), heading))
    return tuple(headings)


def _with_headings(parts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, tuple[Heading, ...]]]:
    """Parts of Markdown with their headings, and with those of earlier parts that they begin under."""
    path: list[Heading] = []
    fence = ""  # opens the code block that the part begins in
    for offset, text in parts:
        fenced = fence + text
        own = [(start - len(fence), level, heading) for start, level, heading in markdown_headings(fenced)]
        yield offset, text, (*path, *own)
        for heading in own:
            path = path_to(heading, path)
        path = [(start - len(text), level, heading) for start, level, heading in path]
        fence = next((f"{block[1]}\n" for block in _FENCE.finditer(fenced) if not block[2]), "")


def _text_parts(path: Path) -> Iterator[tuple[int, str]]:
    """The text of a file in parts of about a megabyte of whole lines, each with the offset of its first character."""
    offset = 0
    with open(path, "rb") as file:
        data = file.read(_PART_BYTES)
        _check_text(data)
        data = data.removeprefix(b"\xef\xbb\xbf")
        while data:
            more = file.read(_PART_BYTES)
            end = _part_end(data) if more else len(data)
            text = data[:end].decode("utf-8")
            yield offset, text
            offset += len(text)
            data = data[end:] + more


def _check_text(data: bytes) -> None:
    """Refuse a file in UTF-16 or UTF-32, or of another kind than text."""
    if advice := other_encoding(data):
        raise DataError(advice)
    if b"\0" in data[:8192]:
        raise DataError("binary, not text")


def _part_end(data: bytes) -> int:
    """End of a part: after an empty line in its second half, else after a line, a word or a character."""
    if (end := data.rfind(b"\n\n")) > len(data) // 2:
        return end + 2
    return data.rfind(b"\n") + 1 or data.rfind(b" ") + 1 or _character_end(data)


def _character_end(data: bytes) -> int:
    end = len(data)
    while end > 1 and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if data[end - 1] >= 0xC0 else len(data)


def _check_size(source: SourceFile, kind: str) -> None:
    if source.size > _LARGEST_WHOLE:
        raise DataError(f"{source.size:,} bytes: expected at most {_LARGEST_WHOLE:,} for {kind}; split the file")


def _whole_text(source: SourceFile) -> str:
    _check_size(source, "html")
    data = source.path.read_bytes()
    _check_text(data)
    return data.decode("utf-8-sig")


def import_pypdf() -> Any:
    """The module pypdf.

    Raises:
        DependencyError: it is not installed.
    """
    try:
        import pypdf
    except ImportError:
        raise DependencyError("pdf needs pypdf: pip install 'bertkit[pdf]'") from None
    logging.getLogger("pypdf").addHandler(logging.NullHandler())  # else its remarks, which name no file, are printed
    return pypdf


def _pdf(source: SourceFile, metadata: dict[str, Scalar]) -> Iterator[Document]:
    _check_size(source, "pdf")
    try:
        pypdf = import_pypdf()
    except DependencyError as error:
        raise DataError(str(error)) from None  # the other files are read
    try:
        reader = pypdf.PdfReader(source.path)
        title = _whole_characters(str(reader.metadata.title or "")) if reader.metadata else ""
        offset = 0
        for number, page in enumerate(reader.pages, start=1):
            text = _whole_characters(page.extract_text()) + "\n\n"
            yield Document(source.name, text, title, (), metadata | {"page": number}, offset)
            offset += len(text)
    except BertkitError:
        raise
    except Exception as error:  # pypdf can raise anything for a damaged file
        raise DataError(f"cannot be read as pdf: {error}") from None


def _whole_characters(text: str) -> str:
    """A text with U+FFFD for half of a surrogate pair, which pypdf returns for characters that it cannot map."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
