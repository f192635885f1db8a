"""Python compiled at run time: the one place where numba is set up.

Takes: functions written in the part of Python that numba compiles.
Gives: such a function as machine code, kept on disk and run without the interpreter's lock.
May import: nothing.
"""

import hashlib
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

Function = TypeVar("Function", bound=Callable)


def compiled(function: Function) -> Function:
    """Compile ``function`` when it is first called, for the types it is called with.

    The machine code is kept beside the source, or where that may not be written in the user's cache folder, or where
    that is not possible either not at all: then every process compiles anew.
    """
    return _kept(function)


def lean(function: Function) -> Function:
    """As ``compiled``, for a function that makes no arrays of its own: no references to its arguments are counted,
    which would take longer than a short call with many arrays."""
    return _kept(function, **_LEAN)


def lean_part(function: Function) -> Function:
    """A part of ``lean`` functions: not called from Python, and kept with those that call it."""
    return _compile(function, **_LEAN, **_PART)


def lean_inline(function: Function) -> Function:
    """A ``lean_part`` small enough to be written out wherever it is called."""
    return _compile(function, **_LEAN, **_PART, forceinline=True)


class _PartLibrary(JITCodeLibrary):
    """The code of a part, as a stage on the way: numba would optimize each and make machine code of it, and then do so
    again within every function that calls it. Without that the first text of a new machine takes a fifth less time."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Where there is no machine code there is no room for a function's Python objects; a part has none."""


class _PartCompiler(Compiler):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), "part")


_compile: Any = partial(numba.njit, nogil=True, error_model="numpy")  # numba's own annotations say less
_PART = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _PartCompiler}
_LEAN = {"_nrt": False, "no_rewrites": True}  # the rewrites would only drop branches that are decided by a None


def _kept(function: Function, **options: bool) -> Function:
    try:
        dispatcher = _compile(function, cache=True, **options)
    except RuntimeError:  # no folder to keep it in
        return _compile(function, **options)
    # numba keeps code for one state of the file that defines a function; compiled code also calls other files of ours.
    index = dispatcher._cache._cache_file
    index._version = f"{index._version} {_source_state(Path(function.__code__.co_filename))}"
    return dispatcher


@cache
def _source_state(file: Path) -> str:
    """Hash that changes whenever ``file`` is edited, or a file of this package that it imports, directly or not."""
    package = Path(__file__).parent
    files, state = [file], hashlib.sha256()
    for each in files:  # grows while it is read
        text = each.read_text(encoding="utf-8")
        state.update(text.encode())
        for module in re.findall(r"^from bertkit\.([\w.]+) import", text, re.MULTILINE):
            imported = package.joinpath(*module.split("."))
            sources = sorted(imported.glob("*.py")) if imported.is_dir() else [imported.with_suffix(".py")]
            files += [source for source in sources if source not in files]
    return state.hexdigest()[:16]
