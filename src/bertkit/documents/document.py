"""Documents to index, their headings, the state of files, and the files, or parts of them, that were skipped."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertkit.documents.metadata import check_id, check_unicode
from bertkit.errors import UsageError, checked_count

Heading = tuple[int, int, str]
"""First character, level from 1, and heading; "" for the text after the end of a section."""

INDEX_FILE = "store.sqlite3"
"""The file by which a folder is that of an index, whose own texts are not indexed."""

FileState = Literal["current", "changed", "missing", "unreadable"]
"""The state of a file compared with an earlier one; "unreadable" if a folder above it cannot be read."""


@dataclass(frozen=True)
class Document:
    """A text to index."""

    id: str
    text: str
    title: str = ""  # prepended to each passage for embedding
    headings: tuple[Heading, ...] = ()  # in order; of earlier parts, those above this text, at negative characters
    metadata: Mapping[str, object] = field(default_factory=dict)  # values that `stored_value` accepts
    offset: int = 0  # offset of the text in the document, for documents in parts
    line: int | None = None  # line of the file that all of the text is from; 0: unknown; None: its lines are the file's

    def __post_init__(self) -> None:
        check_id("document id", self.id)
        if not self.id:
            raise UsageError("document id '': expected a str that is not empty")
        for name, text in (("text", self.text), ("title", self.title)):
            if not isinstance(text, str):
                raise UsageError(f"document {self.id!r:.60}: {name} is {type(text).__name__}, expected str")
            check_unicode(f"document {self.id!r:.60}: {name}", text)
        for heading in self.headings:
            match heading:
                case (int(), int(), str()):
                    continue
            raise UsageError(
                f"document {self.id!r:.60}: the heading {heading!r:.60}: expected its first character, level and text"
            )
        for name, number in (("offset", self.offset), ("line", self.line)):
            if number is not None:
                checked_count(f"document {self.id!r:.60}: {name}", number, 0)
        if not isinstance(self.metadata, Mapping):
            raise UsageError(f"document {self.id!r:.60}: metadata is {type(self.metadata).__name__}, expected a dict")


@dataclass(frozen=True)
class SourceFile:
    """A file to read."""

    name: str  # document name: the path as given, with "/"
    path: Path
    size: int
    modified: int  # nanoseconds
    kind: str = ""  # a key of READERS that replaces the kind of its name

    @property
    def absolute_path(self) -> str:
        """The path from the root; links in it are kept."""
        return os.path.abspath(self.path)


@dataclass(frozen=True)
class SkippedFile:
    """A file, or a part of it, that was skipped."""

    path: str
    why: str
    is_part: bool = False  # a row, a passage or an attachment: the rest of the file is read
    is_other_format: bool = False  # a file that holds no text, such as a picture
    is_excluded: bool = False  # a file or folder that is not wanted: its passages are removed


def file_state(path: str | Path, size: int, modified: int) -> FileState:
    """The state of a file, compared with its size, and its time of modification in nanoseconds."""
    try:
        state = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "unreadable"
    if not stat.S_ISREG(state.st_mode):
        return "missing"
    return "current" if (state.st_size, state.st_mtime_ns) == (size, modified) else "changed"


def path_to(heading: Heading, above: Sequence[Heading]) -> list[Heading]:
    """A heading and those that it is under, given those above it.

    >>> path_to((9, 2, "Plums"), [(0, 1, "Fruit"), (5, 2, "Apples")])
    [(0, 1, 'Fruit'), (9, 2, 'Plums')]
    """
    return [*(one for one in above if one[1] < heading[1]), heading]
