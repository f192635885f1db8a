"""Python compiled at run time: the one place where numba is set up.

Takes: functions written in the part of Python that numba compiles.
Gives: compiled: such a function as machine code, kept on disk and run without the interpreter's lock.
May import: nothing.
"""

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable)


def compiled(function: Function) -> Function:
    """Compile ``function`` when it is first called, for the types it is called with.

    The machine code is kept beside the source, or where that may not be written in the user's cache folder, or where
    that is not possible either not at all: then every process compiles anew.
    """
    compile_: Any = partial(numba.njit, nogil=True, error_model="numpy")  # numba's own annotations say less
    try:
        dispatcher = compile_(function, cache=True)
    except RuntimeError:  # no folder to keep it in
        return compile_(function)
    # numba keeps code for one state of the file a function stands in; it calls into other files of ours.
    index = dispatcher._cache._cache_file
    index._version = f"{index._version} {_source_state()}"
    return dispatcher


@cache
def _source_state() -> str:
    """Changes with every change of this package's files."""
    state = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        status = file.stat()
        state.update(f"{file.name} {status.st_mtime_ns} {status.st_size};".encode())
    return state.hexdigest()[:16]
