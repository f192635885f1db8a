"""Memory that was freed, returned to the operating system.

The C library keeps what batches of many tokens and the compiling of kernels leave behind: a hundred megabytes.
"""

import asyncio
import ctypes
from collections.abc import Callable

_SECONDS = 5.0


def return_free_memory() -> None:
    """Return freed memory, where the C library is glibc; takes some milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


async def return_memory_when_idle(num_batches: Callable[[], int]) -> None:
    """Return freed memory whenever batches were followed by some seconds without any.

    Args:
        num_batches: how many there were so far.
    """
    loop, returned, last = asyncio.get_running_loop(), 0, 0
    while True:
        await asyncio.sleep(_SECONDS)
        now = num_batches()
        if now == last != returned:
            await loop.run_in_executor(None, return_free_memory)
            returned = now
        last = now
