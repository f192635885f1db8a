"""Files to index: those at given paths and in folders, but for hidden, ignored and excluded files."""

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from bertkit.documents.document import INDEX_FILE, SkippedFile, SourceFile
from bertkit.documents.readers import KINDS_TO_CHOOSE, why_not_text
from bertkit.errors import DataError, UsageError, check_several, check_type

Rule = tuple[str, str, GitIgnoreSpec]
"""Absolute path of a folder, the name of its .gitignore, and the patterns in it."""


@dataclass(frozen=True)
class FileOptions:
    """Options of choosing files; patterns are those of .gitignore, relative to the folder that is indexed."""

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()  # if any, only files that match one
    kind: str = ""  # read every file as this kind, "text" or an extension without the dot; "": by its name

    def __post_init__(self) -> None:
        for name, patterns in (("exclude", self.exclude), ("include", self.include)):
            check_several(name, patterns, in_order=False)
        if self.kind and self.kind not in KINDS_TO_CHOOSE:
            raise UsageError(f"files as {self.kind!r}: expected one of {', '.join(KINDS_TO_CHOOSE)}")
        try:
            GitIgnoreSpec.from_lines([*self.exclude, *self.include])
        except ValueError as error:
            raise UsageError(f"{error}: expected the name of a file or folder, or a pattern as in .gitignore") from None


def find_sources(
    paths: Iterable[str | Path], skipped: list[SkippedFile], options: FileOptions = FileOptions()
) -> list[SourceFile]:
    """The files at these paths, and all files below the folders there, except hidden ones; each once, under the first
    path to it.

    Args:
        skipped: receives files that hold no text, or whose name is not UTF-8; links to files that were listed before;
            files and folders that .gitignore or the options exclude; pipes, sockets and devices; and folders that
            cannot be read, or are links.

    Raises:
        DataError: no such file or folder.
    """
    check_type("files", options, FileOptions)
    files: dict[tuple[int, int], SourceFile] = {}  # by device and number
    for path in paths:
        if not str(path):
            raise DataError("a path is empty: expected a file or folder, such as . for this one")
        given = Path(path)
        try:
            if not given.exists():
                raise DataError(f"{given}: no such file or folder")
            inside = _files_below(given, skipped, options) if given.is_dir() else [given]
        except OSError as error:
            raise DataError(f"{given}: {error.strerror}") from None
        for path in inside:
            name = name_of(path)
            try:
                state = path.stat()
                if not stat.S_ISREG(state.st_mode):
                    skipped.append(SkippedFile(name, "a pipe, socket or device, not a file"))
                elif not options.kind and (why := why_not_text(path)):
                    skipped.append(SkippedFile(name, why, is_other_format=True))
                elif name != path.as_posix():
                    skipped.append(SkippedFile(name, "its name is not UTF-8: rename the file"))
                else:
                    source = SourceFile(name, path, state.st_size, state.st_mtime_ns, options.kind)
                    first = files.setdefault((state.st_dev, state.st_ino), source)
                    if first.absolute_path != source.absolute_path:
                        skipped.append(SkippedFile(name, f"the same file as {first.name}", is_excluded=True))
            except OSError as error:
                skipped.append(SkippedFile(name, error.strerror or str(error)))
    return list(files.values())


def _files_below(folder: Path, skipped: list[SkippedFile], options: FileOptions) -> list[Path]:
    """All files below a folder except hidden and excluded ones, sorted."""

    def unreadable(error: OSError) -> None:
        skipped.append(SkippedFile(name_of(Path(error.filename)), f"the folder cannot be read: {error.strerror}"))

    def is_wanted(path: Path, end: str = "") -> bool:
        absolute = os.path.abspath(path)
        rules = [(top, "an exclude pattern", excluded), *reversed(ignored)]  # the first that matches decides
        for root, name, patterns in rules:
            if absolute.startswith(os.path.join(root, "")):
                is_excluded = patterns.check_file(os.path.relpath(absolute, root) + end).include
                if is_excluded:
                    skipped.append(SkippedFile(name_of(path) + end, f"excluded by {name}", is_excluded=True))
                if is_excluded is not None:
                    return not is_excluded
        return True

    top = os.path.abspath(folder)
    excluded, included = GitIgnoreSpec.from_lines(options.exclude), GitIgnoreSpec.from_lines(options.include)
    ignored = [rule for parent in _repository_above(Path(top)) for rule in _rules_in(parent, skipped)]
    paths: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable):
        ignored += _rules_in(Path(parent), skipped)
        folders[:] = [
            name for name in sorted(folders) if not name.startswith(".") and is_wanted(Path(parent, name), "/")
        ]
        for path in (Path(parent, name) for name in list(folders)):
            if os.path.islink(path):
                skipped.append(SkippedFile(name_of(path), "links to folders are not followed: give the folder itself"))
            elif (path / INDEX_FILE).is_file():
                skipped.append(SkippedFile(f"{name_of(path)}/", "the folder of an index", is_excluded=True))
                folders.remove(path.name)
        for path in (Path(parent, name) for name in sorted(files) if not name.startswith(".")):
            if options.include and not included.match_file(os.path.relpath(path, folder)):
                skipped.append(SkippedFile(name_of(path), "not included", is_excluded=True))
            elif is_wanted(path):
                paths.append(path)
    return sorted(paths)


def _repository_above(folder: Path) -> list[Path]:
    """The folders that a folder is in, from the root of its git repository; empty outside of one."""
    parents = [folder, *folder.parents]
    root = next((number for number, parent in enumerate(parents) if (parent / ".git").exists()), 0)
    return parents[root:0:-1]


def _rules_in(folder: Path, skipped: list[SkippedFile]) -> list[Rule]:
    path = folder / ".gitignore"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [(os.path.abspath(folder), name_of(path), GitIgnoreSpec.from_lines(lines))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:  # pathspec raises the latter
        skipped.append(SkippedFile(name_of(path), f"its patterns cannot be read: {error}"))
        return []


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
