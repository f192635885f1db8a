"""Changes of files since they were indexed: new, changed, renamed and removed ones."""

import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bertkit.documents.document import SkippedFile, SourceFile
from bertkit.documents.passages import PassageOptions
from bertkit.documents.sources import FileOptions, content_of, find_sources, is_inside, name_of
from bertkit.errors import DataError, UsageError
from bertkit.search.source_table import StoredSource, named_documents, options_of, passage_ids, stored_sources


@dataclass
class IndexReport:
    """Changes made by indexing, or planned."""

    new: list[str] = field(default_factory=list)  # files
    changed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)  # from, to
    removed: list[str] = field(default_factory=list)
    replaced: list[tuple[str, str]] = field(default_factory=list)  # changed, and path of the other file it stood for
    num_unchanged: int = 0
    skipped: list[SkippedFile] = field(default_factory=list)  # skipped files, rows and passages
    num_passages: int = 0  # passages of new, changed and renamed files, and of documents
    num_embedded: int = 0  # passages embedded now
    num_cut: int = 0  # passages longer than the model's limit


@dataclass
class Job:
    """A file to read."""

    source: SourceFile
    content: str
    was: str  # its name in the store, another one if it was renamed
    column: str  # of the texts of rows, "" for the default
    options: str
    same: str  # a file with the same content, whose vectors are reused; itself without another


def plan(
    connection: sqlite3.Connection | None,
    paths: Iterable[str | Path],
    passages: PassageOptions,
    column: str | None,
    files: FileOptions,
    report: IndexReport,
) -> tuple[list[Job], list[Job]]:
    """Compare files with those in the store, and update the report.

    A file that the store has under another path to it, such as the absolute one, counts as renamed. A path where
    nothing exists is reported, and files that were there are removed, as they are from a folder that exists.

    Args:
        connection: to the store; None for a new one.
        column: column of the texts of rows; None: that which a file was last read with.
        files: which files of folders are read. Others are removed.

    Returns:
        Files to read, and unchanged files whose time or path changed.

    Raises:
        DataError: none of the paths exists and can be read.
    """
    if not isinstance(column, str | None):
        raise UsageError(f"column={column!r:.40}: expected a str, such as 'title,body' for several")
    paths, absent_paths = _reachable(list(paths), report)
    sources = find_sources(paths, report.skipped, files)
    known = stored_sources(connection) if connection else {}
    new = {source.name for source in sources} - known.keys()
    document_ids = named_documents(connection, new) if connection else set()
    why = "a document of the index has this id: remove it, or give the file by another path"
    report.skipped += [SkippedFile(name, why) for name in sorted(document_ids)]
    sources = [source for source in sources if source.name not in document_ids]
    present = {source.name for source in sources}
    folders = [
        (Path(path), Path(os.path.abspath(path)))
        for path in (*paths, *absent_paths)
        if path in absent_paths or Path(path).is_dir()
    ]
    excluded = {one.path.rstrip("/") for one in report.skipped if one.is_excluded}
    gone = {
        name
        for name, one in known.items()
        if name not in present
        and any(is_inside(name, folder) or is_inside(one.path, absolute) for folder, absolute in folders)
        and (one.state == "missing" or not excluded.isdisjoint((name, *map(str, Path(name).parents))))
    }
    absolute_paths = {source.absolute_path for source in sources}
    missing = known.keys() - present
    named_otherwise = {known[name].path: name for name in missing if known[name].path in absolute_paths}
    absent: dict[str, list[str]] = {}  # by content, files that may have been renamed
    for name in sorted(missing - set(named_otherwise.values())):
        absent.setdefault(known[name].content, []).append(name)
    same = {one.content: name for name, one in known.items() if name not in gone}
    jobs, touched = [], []
    for given in sources:
        source, was = _matched(given, known, named_otherwise, gone)
        before, keeps_name = known.get(was), was == source.name
        its_column = column or (before.column if before else "")
        options = options_of(passages, its_column, files.kind)
        is_current = before is not None and bool(before.content) and before.options == options and keeps_name
        state = source.size, source.modified, source.absolute_path
        if before and is_current and (before.size, before.modified, before.path) == state:
            report.num_unchanged += 1
            continue
        try:
            content = content_of(source.path)
        except OSError as error:
            report.skipped.append(SkippedFile(source.name, error.strerror or str(error)))
            continue
        job = Job(source, content, was, its_column, options, was if before else same.setdefault(content, was))
        if before and is_current and before.content == content and before.size >= 0:
            report.num_unchanged += 1
            touched.append(job)
            continue
        if not keeps_name:
            report.renamed.append((was, source.name))
        elif before and before.content:
            report.changed.append(source.name)
            if _is_another(before, source):
                report.replaced.append((source.name, before.path))
        elif (old := _renamed(absent.get(content, []), known)) is not None:
            report.renamed.append((old, source.name))
            its_column = column or known[old].column
            gone.discard(old)
            job = Job(source, content, old, its_column, options_of(passages, its_column, files.kind), old)
        else:
            report.new.append(source.name)
        jobs.append(job)
    report.removed += sorted(gone)
    return jobs, touched


def plan_removal(connection: sqlite3.Connection, names: Iterable[str | Path], report: IndexReport) -> None:
    """Report files and documents as removed, and names that are not in the index as skipped.

    A name stands for the files at or below a path from the working directory; without any, for those at or below a path
    as files are named in the index; without any, for the document with this id.

    Raises:
        DataError: none of them is in the index.
    """
    sources, removed = stored_sources(connection), dict[str, None]()
    for path_or_id in names:
        absolute, name, id = os.path.abspath(path_or_id), name_of(Path(path_or_id)), str(path_or_id)
        matches = [one for one, source in sources.items() if _is_at_or_below(source.path, absolute)]
        matches = matches or [one for one in sources if _is_at_or_below(one, name)]
        matches = matches or [id] * (next(passage_ids(connection, id), None) is not None)
        if not matches:
            file = id.rpartition("#")[0]
            why = f"a part of {file}, which can be removed whole" if file in sources else "not in the index"
            report.skipped.append(SkippedFile(id, why))
        removed |= dict.fromkeys(sorted(matches))
    if report.skipped and not removed:
        raise DataError("; ".join(f"{one.path}: {one.why}" for one in report.skipped))
    report.removed += removed


def _is_at_or_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _reachable(paths: list[str | Path], report: IndexReport) -> tuple[list[str | Path], list[str | Path]]:
    """The paths to read, and those where nothing exists. What is not read is reported, unless it is all."""
    reachable: list[str | Path] = []
    absent: list[str | Path] = []
    skipped = []
    for path in paths:
        try:
            os.stat(path or ".")  # an empty path is an error of `find_sources`
            reachable.append(path)
            continue
        except (FileNotFoundError, NotADirectoryError):
            why = "no such file or folder"
            absent.append(path)
        except OSError as error:
            why = error.strerror or str(error)
        except ValueError as error:  # a NUL character
            why = str(error)
        skipped.append(SkippedFile(name_of(Path(path)), why))
    if paths and not reachable:
        name, why = skipped[0].path, skipped[0].why
        hint = "; a text, instead of a path, is given as Document(id, text)" if len(name.split()) > 1 else ""
        raise DataError(f"{name:.200}: {why}{hint}")
    report.skipped += skipped
    return reachable, absent


def _matched(
    source: SourceFile, known: dict[str, StoredSource], named_otherwise: dict[str, str], gone: set[str]
) -> tuple[SourceFile, str]:
    """A file under the name to store it by, and its name in the store: the same for a new file.

    Args:
        named_otherwise: names in the store by the absolute path of the file.
        gone: receives the other name of a file that the store has twice.
    """
    before, other = known.get(source.name), named_otherwise.get(source.absolute_path)
    if before is None or other is None:
        return source, other or source.name
    if _is_another(before, source):
        return replace(source, name=other), other
    gone.add(other)
    return source, source.name


def _is_another(before: StoredSource, source: SourceFile) -> bool:
    """Whether a row is that of another file, which exists."""
    try:
        return before.path != source.absolute_path and not os.path.samefile(before.path, source.path)
    except OSError:
        return False


def _renamed(names: list[str], known: dict[str, StoredSource]) -> str | None:
    """The first of some files that no longer exists, removed from the list; None if all may exist."""
    for name in names:
        if known[name].state == "missing":
            names.remove(name)
            return name
    return None
