"""Atomic writing of files and folders: under a temporary name, then renamed."""

import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bertkit.errors import UsageError, checked_path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the errors of a full disk, which name no file or a temporary one."""

_FULL_DISK_OF_LIBRARIES = re.compile(r"\(os error (\d+)\)|\d+ requested and \d+ written")

_ABANDONED_SECONDS = 60
"""Age from which a temporary file that no process has locked is abandoned: new ones are not locked yet."""
_END_OF_NAME = re.compile(r"[0-9a-f]{16}\.partial")  # of `_unused_name`


@contextmanager
def whole_file(path: str | Path, *, is_private: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; on success flush it to disk and rename it to ``path``.

    On any exception, Ctrl-C included, the temporary file is removed and an existing ``path`` is unchanged. What a
    killed process left is removed when ``path`` is written again, where the system has locks of files. A link is
    followed: the file that it names is replaced, and its permissions are kept. A device or pipe cannot be replaced:
    ``path`` itself is yielded.

    Args:
        is_private: only the owner can read the file.

    Raises:
        OSError: the disk is full; the error names ``path``.
        UsageError: the folder does not exist or cannot be written to, or ``path`` is a folder.
    """
    path = checked_path("the file to write", path)
    check_writable(path)
    with _named_if_full(path):
        if path.exists() and not path.is_file():
            yield path
        else:
            with _whole(_linked(path), is_private) as temporary:
                yield temporary


@contextmanager
def _named_if_full(path: Path) -> Iterator[None]:
    """Errors of a full disk name ``path`` instead of a temporary name, or none; also those of safetensors and numpy,
    which have the number in their text, or none."""
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None)
        if number is None and (match := _FULL_DISK_OF_LIBRARIES.search(str(error))):
            number = int(match[1] or errno.ENOSPC)
        if number not in FULL_DISK:
            raise
        raise OSError(number, f"{os.strerror(number)}, make room on its disk", str(path)) from error


@contextmanager
def _whole(path: Path, is_private: bool) -> Iterator[Path]:
    """`whole_file` of a path that is no link."""
    temporary = _unused_name(path, "partial")
    try:
        temporary.touch(exist_ok=False)
        mode = _made_private(temporary)
        with _held(temporary, path):
            yield temporary
            if not is_private:
                temporary.chmod(stat.S_IMODE(path.stat().st_mode) if path.exists() else mode)
            _flush_to_disk(temporary)
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path, name: str) -> None:
    """Remove what a killed process left of writing files of this name, in a folder and below it."""
    for path in folder.rglob(f".{name}.*.partial"):
        path.unlink()


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Create a folder if it is missing, and write in it as the only process, where the system has locks of files.

    Raises:
        UsageError: another process writes in the folder, or its path or a parent is a file.
    """
    check_no_file(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = _locked(folder)
    except BlockingIOError:
        raise UsageError(
            f"{folder} is being written by another process: wait until it has finished, then start this one again, "
            "or choose another folder"
        ) from None
    try:
        yield
    finally:
        _unlock(handle)


@contextmanager
def lock_file(path: Path, longest_wait: float) -> Iterator[None]:
    """A file that processes lock one after the other, where the system has locks of files; deleted after the block.

    The block also runs if the other process ends meanwhile, after ``longest_wait`` seconds, or if the folder cannot be
    written.
    """
    with ExitStack() as at_end:
        with suppress(OSError):  # also if the other process has deleted it
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            at_end.callback(_unlock, _locked_after(path, longest_wait))
            at_end.callback(path.unlink, missing_ok=True)
        yield


def check_writable(path: Path, *inputs: str | Path | None, endings: Sequence[str] = ()) -> None:
    """Check that a file can be written at ``path``, before long work.

    Args:
        inputs: files and folders that it must not replace or add to, as in `check_not_input`.
        endings: the allowed extensions; (): any.

    Raises:
        UsageError: another extension, the folder does not exist or cannot be written to, ``path`` is a folder, or one
            of the inputs.
    """
    check_not_input(path, *inputs)
    if endings and path.suffix not in endings:
        expected = f"one of {', '.join(endings)}" if len(endings) > 1 else endings[0]
        raise UsageError(f"{path}: unknown extension {path.suffix!r}, expected {expected}")
    path = _linked(path)
    if not path.parent.is_dir():
        problem = "is a file; choose another" if path.parent.exists() else "does not exist; create it first"
        raise UsageError(f"cannot write {path}: the folder {path.parent} {problem}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; expected a file name")
    if not path.exists() or path.is_file():  # a device or pipe is not replaced
        _check_access(str(path), path.parent)


def check_not_input(path: Path, *inputs: str | Path | None) -> None:
    """Check that writing a file replaces none of the files that are read, and adds none to a folder of them, before any
    work is done.

    Raises:
        UsageError: ``path`` is one of them, or in one of them.
    """
    for source in (Path(name) for name in inputs if name is not None):
        if path.exists() and source.exists() and path.samefile(source):
            raise UsageError(f"cannot write {path}: it is the input {source}; choose another name")
        if source.is_dir() and path.resolve().is_relative_to(source.resolve()):
            raise UsageError(f"cannot write {path}: it is in the input folder {source}; choose another folder")


def check_empty(path: Path, remedy: str = "") -> None:
    """Check that a folder is empty or does not exist.

    Args:
        remedy: appended to the advice of the error.

    Raises:
        UsageError: it has files.
    """
    if path.is_dir() and any(path.iterdir()):
        raise UsageError(f"{path} exists and is not empty: choose another folder, or remove it{remedy}")


def check_no_file(folder: Path) -> None:
    """Check that a path is that of a folder, or of one that can be created.

    Raises:
        UsageError: it, or its nearest existing parent, is a file.
    """
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise UsageError(f"cannot write the folder {folder}: {nearest} is not a folder; choose another path")


def check_folder_writable(path: Path) -> None:
    """Check that a folder can be written or replaced at ``path``, before long work; missing parents can be created.

    Raises:
        UsageError: ``path`` or its nearest existing parent is not a folder, or cannot be written to; or ``path`` is the
            root of a disk.
    """
    path = path.absolute()
    if not path.name:
        raise UsageError(f"cannot write the folder {path}: it is the root of a disk; choose a folder in it")
    check_no_file(path)
    nearest = next(parent for parent in path.parents if parent.exists())
    _check_access(f"the folder {path}", *(path, nearest) if path.exists() else (nearest,))


def _check_access(what: str, *folders: Path) -> None:
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"cannot write {what}: {folder} is not writable; choose another path")


@contextmanager
def whole_folder(path: str | Path, *, overwrite: bool | None = None) -> Iterator[Path]:
    """Yield an empty temporary folder next to ``path``; on success rename it to ``path``.

    An existing non-empty ``path`` is refused unless ``overwrite``; then it is replaced as a whole, and is put back if
    the replacement fails.

    Args:
        overwrite: False and None refuse; None: without naming this option, as the caller does not offer it.

    Raises:
        OSError: the disk is full; the error names ``path``.
        UsageError: as `check_folder_writable`, or a non-empty folder unless ``overwrite``.
    """
    path = checked_path("the folder to write", path).resolve()
    check_folder_writable(path)
    if not overwrite:
        check_empty(path, "" if overwrite is None else " (in Python: overwrite=True)")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _unused_name(path, "partial")
    try:
        temporary.mkdir()
        mode = _made_private(temporary)
        with _named_if_full(path), _held(temporary, path):
            yield temporary
            temporary.chmod(mode)
            for file in temporary.rglob("*"):
                if file.is_file():
                    file.chmod(mode & 0o666)
                    _flush_to_disk(file)
            _swap_in(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap_in(temporary: Path, path: Path) -> None:
    """Rename a folder to ``path``; a folder that is there is replaced in one step, where the system can."""
    if path.exists() and _exchange(temporary, path):
        return
    old = _unused_name(path, "old")
    try:
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
    finally:
        if old.exists() and not path.exists():
            os.replace(old, path)
        shutil.rmtree(old, ignore_errors=True)  # also where another process has put its folder there meanwhile


def _exchange(a: Path, b: Path) -> bool:
    """Exchange the names of two folders, so that at any moment both exist; False where the system cannot (Linux can,
    on most file systems)."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return rename is not None and rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0


_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)


def _unused_name(path: Path, suffix: str) -> Path:
    """A hidden name next to ``path``. It is chosen before a file or folder is created, so that the caller can remove it
    even if a signal interrupts the creation."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{suffix}")


@contextmanager
def _held(temporary: Path, path: Path) -> Iterator[None]:
    """Lock a temporary file or folder while the block runs; before it, remove those that killed processes left."""
    lock = _locked(temporary)
    try:
        _remove_abandoned(path)
        yield
    finally:
        _unlock(lock)


def _remove_abandoned(path: Path) -> None:
    start, names = f".{path.name}.", []
    with suppress(OSError):
        names = [name for name in os.listdir(path.parent) if name.startswith(start)]  # of a folder of many files
    for left in [path.with_name(name) for name in names if _END_OF_NAME.fullmatch(name, len(start))]:
        with suppress(OSError):
            is_old = time.time() - left.lstat().st_mtime > _ABANDONED_SECONDS
            if is_old and (lock := _locked(left)) is not None:
                try:
                    shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
                finally:
                    _unlock(lock)


def _locked(path: Path) -> int | None:
    """The descriptor of a file or folder that is locked until it is closed, or the process ends; None where the system
    has no such locks.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be opened.
    """
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # nothing waits for the other end of a pipe
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None  # a network disk
    return handle


def _locked_after(path: Path, longest_wait: float) -> int | None:
    """As `_locked`, after at most ``longest_wait`` seconds in which another process has it."""
    end = time.monotonic() + longest_wait
    while True:
        try:
            return _locked(path)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def _unlock(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _linked(path: Path) -> Path:
    """The path that a link names; any other path as it is."""
    return path.resolve() if path.is_symlink() else path


def _flush_to_disk(file: Path) -> None:
    with open(file, "rb+") as handle:
        os.fsync(handle.fileno())


def _made_private(path: Path) -> int:
    """Make a new file or folder private; returns its mode before, which the process's umask gave it. To read the umask
    itself is to change it, for all threads."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0o600 if path.is_file() else 0o700)
    return mode
