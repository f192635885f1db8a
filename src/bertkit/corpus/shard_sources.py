"""What a token shard is made of: the source files, their identity, and whether a shard was made of the same."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertkit.corpus.documents import as_list
from bertkit.corpus.texts import PYTHON_DOCS, check_names, find_files
from bertkit.errors import DataError, UsageError
from bertkit.files import extension


def find_sources(sources: str | Path | Sequence[str | Path], column: str | None) -> tuple[list[Path], list[Path]]:
    """The files to read, and those in the folders with other extensions.

    Raises:
        DataError, UsageError: as ``find_files`` and ``check_names``; or a ``column`` when all files are txt.
    """
    found = [find_files(source) for source in as_list(sources)]
    paths, left_out = ([path for files in found for path in files[kind]] for kind in (0, 1))
    check_names([*paths, *left_out])
    if column is not None and all(extension(path) == ".txt" for path in paths):
        raise UsageError(f"txt files have no column {column!r}; omit column=")
    return paths, left_out


def source_of(path: Path) -> dict[str, Any]:
    """The identity of a file; ``sha256`` after it was read."""
    if str(path) == PYTHON_DOCS:
        return {"path": PYTHON_DOCS, "size": 0, "modified_ns": 0, "sha256": source_hash(path), "layout": None}
    status = path.stat()
    known = {"path": str(path), "size": status.st_size, "modified_ns": status.st_mtime_ns}
    return {**known, "sha256": None, "layout": None}


def source_hash(path: Path) -> str:
    """The hash of a file; for python-docs, a hash of Python's version."""
    if str(path) == PYTHON_DOCS:
        return hashlib.sha256(sys.version.encode()).hexdigest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_same(manifest: dict[str, Any], fresh: dict[str, Any], folder: Path) -> None:
    """Check that a shard, finished or not, was made from the same sources, vocabulary and settings.

    Sources that were not started may have changed; their identity is updated.
    """
    advice = "choose another folder, or delete this one"
    if manifest["vocabulary_sha256"] != fresh["vocabulary_sha256"]:
        raise DataError(f"{folder} holds a shard made with another vocabulary: {advice}")
    for name, wanted in fresh["settings"].items():
        used = manifest["settings"].get(name)
        if used != wanted:
            raise DataError(f"{folder} holds a shard made with {name}={used!r}, not {wanted!r}: {advice}")
    recorded, now = manifest["sources"], fresh["sources"]
    if len(recorded) != len(now):
        raise DataError(f"{folder} holds a shard of {len(recorded)} files, but {len(now)} are given: {advice}")
    progress = manifest.get("progress", {"source": len(recorded), "position": 0})
    num_begun = progress["source"] + (progress["position"] > 0)
    for number, (old, new) in enumerate(zip(recorded, now, strict=True)):
        if number >= num_begun:
            recorded[number] = new
        elif not _is_same(old, new):
            difference = "it has changed" if old["path"] == new["path"] else f"{new['path']} is given"
            raise DataError(f"{folder} holds a shard of {old['path']}, but {difference}: {advice}")


def _is_same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether path, size and modification time are equal, or else size and content."""
    if any(old[key] != new[key] for key in ("path", "size", "modified_ns")) or new["sha256"]:
        known = old["sha256"]  # None: it was not read to its end
        return (
            old["size"] == new["size"]
            and known is not None
            and known == (new["sha256"] or source_hash(Path(new["path"])))
        )
    return True
