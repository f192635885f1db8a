"""A disk without room, as tests can have one."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_end_after(num_bytes: int) -> Iterator[None]:
    """As on a disk that is full: the system refuses what is longer, whoever writes it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
