"""Memory of a server: returned to the operating system when it is unused, and searched for cycles without long pauses.

After large batches and the compilation of kernels, the C library keeps about a hundred megabytes of freed memory.
Pages of weight files, which were read to prepare the weights of the kernels, and of the compiler also stay in memory
until they are given back.
"""

import asyncio
import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

_SECONDS = 5.0
_MADV_DONTNEED = 4  # Linux: include/uapi/asm-generic/mman-common.h
_M_ARENA_MAX = -8  # glibc: malloc/malloc.h
_NEW_OBJECTS = 10_000, 50, 1_000
"""See `gc.set_threshold`: objects of the last 10,000 are searched, and those that outlived 50 searches."""

_RARELY_READ = (".safetensors", "/libllvmlite.so")  # once kernels are prepared and compiled


def use_one_heap() -> None:
    """Let threads that start later allocate from one heap, where the C library is glibc: it returns freed memory at the
    end of no other. Their arrays are few and large, so they rarely wait for each other."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)


def exempt_from_collection() -> None:
    """Exempt the existing objects, most of them of imported modules, from Python's searches for unused cycles.

    Such a search stops every thread. With these objects it takes a few hundred milliseconds; with those of hundreds of
    requests alone, a few tens of milliseconds. The latter are searched when the server is idle.
    """
    gc.unfreeze()  # those of models that were replaced are searched again
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_NEW_OBJECTS)


def _collect_and_return_memory() -> None:
    gc.collect()
    return_free_memory()


def return_free_memory() -> None:
    """Return freed memory, where the C library is glibc; takes some milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def unmap_pages_of_unused_files() -> None:
    """Give back the mapped pages of weight files and of the compiler, if the system is Linux.

    They stay in the system's cache of files, where the next process finds them. Pages that were changed are kept with
    all of their mapping, as they would be read from the file again.
    """
    maps = Path("/proc/self/smaps")
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or not maps.is_file():
        return
    for mapping in re.split(r"\n(?=[0-9a-f]+-)", maps.read_text(errors="surrogateescape")):
        described, *lines = mapping.splitlines()
        is_unchanged = {("Anonymous:", "0", "kB"), ("Swap:", "0", "kB")} <= {tuple(line.split()) for line in lines}
        if described.endswith(_RARELY_READ) and is_unchanged:
            start, end = (int(address, 16) for address in described.split(maxsplit=1)[0].split("-"))
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


async def return_memory_when_idle(num_batches: Callable[[], int]) -> None:
    """Collect unused cycles and return freed memory whenever batches were followed by some seconds without any.

    Args:
        num_batches: how many there were so far.
    """
    loop, returned, last = asyncio.get_running_loop(), 0, 0
    while True:
        await asyncio.sleep(_SECONDS)
        now = num_batches()
        if now == last != returned:
            await loop.run_in_executor(None, _collect_and_return_memory)
            returned = now
        last = now
