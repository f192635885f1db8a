"""Memory of a server: returned to the operating system when it was freed, and searched for cycles without long pauses.

The C library keeps what batches of many tokens and the compiling of kernels leave behind: a hundred megabytes.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable

_SECONDS = 5.0


def exempt_from_collection() -> None:
    """Leave the objects of now, most of them of imported modules, out of Python's searches for unused cycles.

    Such a search stops every thread; with them it takes some hundred milliseconds.
    """
    gc.unfreeze()  # those of models that were replaced are searched again
    gc.collect()
    gc.freeze()


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
