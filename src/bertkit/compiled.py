"""Python compiled at run time: the one place where numba is set up.

Takes: functions written in the part of Python that numba compiles.
Gives: compiled: such a function as machine code, kept on disk and run without the interpreter's lock.
May import: nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable)
_compile: Any = partial(numba.njit, nogil=True, error_model="numpy")  # numba's own annotations say less


def compiled(function: Function) -> Function:
    """Compile ``function`` when it is first called, for the types it is called with.

    The machine code is kept beside the source, or where that may not be written in the user's cache folder, or where
    that is not possible either not at all: then every process compiles anew. Code is kept for one state of the file
    that ``function`` stands in: after editing a file it calls into, touch both.
    """
    try:
        return _compile(function, _nrt=False, cache=True)
    except RuntimeError:  # no folder to keep it in
        return _compile(function)


def part(function: Function) -> Function:
    """Compile ``function`` as a part of compiled functions that call it: not kept by itself, not called from Python."""
    return _compile(function, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: Function) -> Function:
    return _compile(function, _nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
