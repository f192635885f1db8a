"""The database of a store in a folder that this process may not write, where SQLite cannot share it with a writer."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_HEADER_BYTES = 32
"""Bytes at the start of SQLite's log, which change when a writer begins the log again."""


class UnsharedFiles:
    """The database and its log of commits, which another process may change at any time.

    Args:
        path: the database.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._log = path, path.with_name(f"{path.name}-wal")
        self._version: tuple[tuple[int, int], ...] | None = None
        self._copy: tempfile.TemporaryDirectory | None = None

    def have_changed(self) -> bool:
        """Whether there was a commit since the last call, by the sizes and times of the files; True at first."""
        version = _size_and_time(self._path), _size_and_time(self._log)
        if version == self._version:
            return False
        self._version = version
        self.close()
        return True

    def source(self) -> tuple[Path, str]:
        """A database with the last commit, and SQLite's options to open it.

        It is a copy if commits are only in the log, and otherwise the database itself.
        """
        self._copy = self._copy or self._copied()
        if self._copy is None:
            return self._path, "mode=ro&immutable=1"
        return Path(self._copy.name) / self._path.name, "mode=rw"

    def close(self) -> None:
        """Delete the copy."""
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _copied(self) -> tempfile.TemporaryDirectory | None:
        """A copy of both files, as of one commit; None if the log is empty.

        The database is first: all that a writer moves into it meanwhile is still in the log, unless it begins again.
        """
        while header := self._header():
            copy = tempfile.TemporaryDirectory()
            with suppress(FileNotFoundError):  # the writer has closed: the log is no longer needed
                for file in (self._path, self._log):
                    shutil.copyfile(file, Path(copy.name) / file.name)
                if self._header() == header:
                    return copy
            copy.cleanup()
        return None

    def _header(self) -> bytes:
        with suppress(FileNotFoundError), self._log.open("rb") as log:
            return log.read(_HEADER_BYTES)
        return b""


def _size_and_time(path: Path) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return 0, 0
