"""Reserved disk space for files that are mapped into memory."""

import errno
import os


def reserve(handle: int, num_bytes: int) -> None:
    """Make an open file this large, with its space on disk where the system can reserve it.

    Writing to a mapped file without space ends the process if the disk is full; this raises instead.

    Raises:
        OSError: the disk is full, or the file cannot be this large.
    """
    try:
        os.posix_fallocate(handle, 0, num_bytes)
    except (AttributeError, OSError) as error:  # no such function (macOS), or not on this file system
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.truncate(handle, num_bytes)
