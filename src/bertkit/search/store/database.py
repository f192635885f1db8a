"""Connections to the database of a store: one writer, and concurrent readers."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from bertkit.documents.document import INDEX_FILE
from bertkit.errors import StoreError, UsageError
from bertkit.files.formats import check_format
from bertkit.search.store.schema import FORMAT
from bertkit.search.store.unshared_files import UnsharedFiles
from bertkit.search.store.writer_lock import LOCK_NAME, WriterLock

_FILES = {INDEX_FILE, f"{INDEX_FILE}-journal", f"{INDEX_FILE}-wal", f"{INDEX_FILE}-shm"}
_PAGE_BYTES = 4096
_ROLLED_BACK = "; the change was rolled back"


class Database:
    """The SQLite database of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._readers: list[sqlite3.Connection] = []  # idle ones
        self._writer: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        is_shared = os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        self._unshared = None if is_shared else UnsharedFiles(folder / INDEX_FILE)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection in a read transaction, which sees one state of the database during concurrent writes."""
        with self._lock:
            if self._unshared is not None and self._unshared.have_changed():
                self._close_readers()
            readers = self._readers
            connection = readers.pop() if readers else None
        connection = connection or self._reader()
        try:
            with _explained(self.folder):
                connection.execute("BEGIN")
                yield connection
        finally:
            connection.rollback()
            with self._lock:
                if readers is self._readers:
                    readers.append(connection)
                else:  # it sees an older state for good
                    connection.close()

    def writer(self) -> sqlite3.Connection:
        """The writing connection; commits return when they are on disk."""
        if self._writer is None:
            with _explained(self.folder):
                self._writer = _connect(f"{_uri(self.folder / INDEX_FILE)}?mode=rw")
                self._writer.execute("PRAGMA synchronous = FULL")
        return self._writer

    @contextmanager
    def committing(self) -> Iterator[sqlite3.Connection]:
        """A transaction of the writer: committed at the end of the block, rolled back on any exception."""
        connection = self.writer()
        with _explained(self.folder, _ROLLED_BACK):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def pack(self) -> None:
        """Free the disk space of deleted rows."""
        with _explained(self.folder, _ROLLED_BACK):
            self.writer().execute("VACUUM")
            self.writer().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            self._close_readers()
            if self._unshared is not None:
                self._unshared.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _close_readers(self) -> None:
        for connection in self._readers:
            connection.close()
        self._readers = []

    def _reader(self) -> sqlite3.Connection:
        path, options = self.folder / INDEX_FILE, "mode=rw"
        if self._unshared is not None:
            with self._lock:
                path, options = self._unshared.source()
        with _explained(self.folder):
            connection = _connect(f"{_uri(path)}?{options}")
            try:
                connection.execute("PRAGMA query_only = 1")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                check_format(version, FORMAT, self.folder, "index the documents into a new folder", StoreError)
            except BaseException:
                connection.close()
                raise
        return connection


def has_store(folder: Path) -> bool:
    """Whether a folder holds a database with tables; without them, a process was killed while it created the store."""
    path = folder / INDEX_FILE
    if not path.is_file():
        return False
    size = path.stat().st_size
    if size > _PAGE_BYTES:
        return True
    if not size:
        return False
    try:  # the tables may be in SQLite's log alone
        with closing(_connect(f"{_uri(path)}?mode=rw")) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    except sqlite3.DatabaseError:
        return True  # `Database` says why it cannot be read


def create_database(folder: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create the database of a new store in a new or empty folder, with tables and rows from ``fill``.

    A folder with nothing but a database without tables counts as empty.

    Raises:
        UsageError: the folder is not empty.
        StoreError: the folder cannot be written, or another process writes a store in it.
    """
    lock = WriterLock(folder)
    try:
        is_folder = folder.is_dir() or not folder.exists()
        if is_folder and (not _files(folder) or INDEX_FILE in _files(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        files = _files(folder) if is_folder else set()
        is_unfinished = INDEX_FILE in files and files <= _FILES and not has_store(folder)
        if not is_folder or (files and not is_unfinished):
            raise UsageError(f"{folder} exists and is not an empty folder: choose another, or open the store in it")
        with _explained(folder, _ROLLED_BACK), closing(_connect(f"{_uri(folder / INDEX_FILE)}?mode=rwc")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN")
            fill(connection)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        lock.release()


def _files(folder: Path) -> set[str]:
    """The files in a folder, without that of the lock; none if there is no folder."""
    return {path.name for path in folder.iterdir()} - {LOCK_NAME} if folder.exists() else set()


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA busy_timeout = 30000")
    return connection


def _uri(path: Path) -> str:
    return f"file:{quote(str(path.resolve()))}"


@contextmanager
def _explained(folder: Path, outcome: str = "") -> Iterator[None]:
    """Errors of SQLite as sentences.

    Args:
        outcome: what the error means for a change in progress.
    """
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            outcome += ": restore a copy of the folder, or index the documents into a new one"
        raise StoreError(f"{folder}: {error}{outcome}") from error
