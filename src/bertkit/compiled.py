"""Just-in-time compilation of functions, when they are first called.

Takes: functions in the subset of Python that numba compiles.
Gives: these functions as machine code, cached on disk and run without the global interpreter lock.
May import: machine_code.
"""

import sys
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable)

_steps_left = 100_000
"""Steps to interpret in this process before loading numba is worth it: a tenth of a second."""

_LEAN = {"_nrt": False, "no_rewrites": True}  # the rewrites would only drop branches that are decided by a None


class Compiled:
    """A function that is compiled at its first call; numba, which takes long to import, is not loaded before.

    Functions that call each other are compiled as one: only what is called from Python is compiled alone and kept. A
    part is interpreted if it is called from Python.

    Attributes are those of numba's dispatcher.
    """

    def __init__(self, function: Callable, options: dict[str, Any], is_part: bool = False) -> None:
        self.plain, self._options, self._is_part = function, options, is_part
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    @cached_property
    def _dispatcher(self) -> Any:
        from bertkit import machine_code

        return machine_code.kept(self.plain, **self._options)

    @cached_property
    def _dispatcher_of_callers(self) -> Any:
        from bertkit import machine_code

        return machine_code.part(self.plain, **self._options)

    @property
    def _numba_type_(self) -> Any:
        """By this compiled functions call each other."""
        return self._dispatcher_of_callers._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self.plain(*arguments) if self._is_part else self._dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # for inspection, such as by doctest
            raise AttributeError(name)
        return getattr(self._dispatcher, name)


def is_loaded() -> bool:
    """Whether numba is loaded. If not, few numbers take numpy or Python less time than its import."""
    return "numba" in sys.modules


def soonest(function: Function, num_steps: int) -> Function:
    """A compiled function; or the same interpreted, with the same results, if numba is not loaded and the steps of this
    call and earlier ones are few.

    Args:
        num_steps: steps of its innermost loop.
    """
    global _steps_left
    if is_loaded() or num_steps > _steps_left:
        return function
    _steps_left -= num_steps
    return cast(Function, partial(_interpreted, cast(Any, function).plain))


def _interpreted(function: Callable, *arguments: Any) -> Any:
    with np.errstate(over="ignore"):  # machine words wrap around
        return function(*arguments)


def compiled(function: Function) -> Function:
    """Compile ``function`` at its first call, for the types of the arguments.

    The machine code is cached next to the source, or in the user's cache folder if that folder is not writable; only in
    ``NUMBA_CACHE_DIR`` if it is set. If no folder is writable, a warning is issued once, and every process compiles
    again.
    """
    return cast(Function, Compiled(function, {}))


def lean(function: Function) -> Function:
    """As ``compiled``, for a function that allocates no arrays: its arguments are not reference-counted, which would
    take longer than a short call with many arrays."""
    return cast(Function, Compiled(function, _LEAN))


def lean_sums(function: Function) -> Function:
    """As ``lean``, for sums of float numbers in any order, which lets them use the vector units."""
    return cast(Function, Compiled(function, {**_LEAN, "fastmath": {"reassoc", "contract", "nsz"}}))


def part(function: Function) -> Function:
    """A helper of ``compiled`` functions: cached with its callers, and interpreted if called from Python."""
    return cast(Function, Compiled(function, {}, is_part=True))


def lean_part(function: Function) -> Function:
    """A helper of ``lean`` functions: cached with its callers, and interpreted if called from Python."""
    return cast(Function, Compiled(function, _LEAN, is_part=True))


def lean_inline(function: Function) -> Function:
    """A ``lean_part`` small enough to be inlined."""
    return cast(Function, Compiled(function, {**_LEAN, "forceinline": True}, is_part=True))


def overload(function: Callable) -> Callable:
    """numba's decorator of what chooses the implementation of ``function`` by the types of its arguments; the
    implementation is a ``part``."""
    from numba.extending import overload

    from bertkit import machine_code

    return overload(function, jit_options=machine_code.OF_PARTS)
