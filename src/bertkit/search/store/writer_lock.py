"""Writer lock: a file lock that names the process that holds it."""

import fcntl
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from bertkit.errors import StoreError

LOCK_NAME = "writer.lock"


class WriterLock:
    """Lock for changing the store in a folder. The operating system releases it when the process ends in any way."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock; no effect if this object holds it.

        Raises:
            StoreError: another process or store holds it; the process is named.
        """
        if self._handle is not None:
            return
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(handle)
            os.close(handle)
            raise StoreError(
                f"{self.path.parent} is being written by {holder}: wait until it is closed, or end that process; "
                "searches do not need to wait"
            ) from None
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        content = {"process": os.getpid(), "host": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
        with suppress(OSError):  # on a full disk the lock has no name
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(content).encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _holder(handle: int) -> str:
    try:
        holder = json.loads(os.pread(handle, 4096, 0))
        return f"process {holder['process']} on {holder['host']} ({holder['command']})"
    except (ValueError, KeyError, TypeError):  # it holds the lock, but its name is not written yet
        return "another process"
