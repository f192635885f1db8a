"""Python compiled at run time: the one place where numba is set up.

Takes: functions written in the part of Python that numba compiles.
Gives: such a function as machine code, kept on disk and run without the interpreter's lock.
May import: nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable)


def compiled(function: Function) -> Function:
    """Compile ``function`` when it is first called, for the types it is called with.

    The machine code is kept beside the source, or where that may not be written in the user's cache folder, or where
    that is not possible either not at all: then every process compiles anew. Code is kept for one state of the file
    that ``function`` stands in: after editing a file it calls into, touch both.
    """
    return _kept(function)


def lean(function: Function) -> Function:
    """As ``compiled``, for a function that makes no arrays of its own: no references to its arguments are counted,
    which would take longer than a short call with many arrays."""
    return _kept(function, **_LEAN)


def lean_part(function: Function) -> Function:
    """A part of ``lean`` functions: not called from Python, and kept with those that call it."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_LEAN)


def lean_inline(function: Function) -> Function:
    """A ``lean_part`` small enough to be written out wherever it is called."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True, **_LEAN)


_compile: Any = partial(numba.njit, nogil=True, error_model="numpy")  # numba's own annotations say less
_LEAN = {"_nrt": False, "no_rewrites": True}  # no reference counts; no array expressions, so nothing to rewrite


def _kept(function: Function, **options: bool) -> Function:
    try:
        return _compile(function, cache=True, **options)
    except RuntimeError:  # no folder to keep it in
        return _compile(function, **options)
