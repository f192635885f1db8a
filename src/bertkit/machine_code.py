"""Machine code of functions, compiled by numba and cached on disk.

Takes: functions in the subset of Python that numba compiles, with numba's options.
Gives: these functions as machine code, run without the global interpreter lock.
May import: errors, files.
"""

import atexit
import hashlib
import os
import pickle
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.event import Event, Listener, register
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from bertkit.errors import UsageError
from bertkit.files.user_cache import user_cache
from bertkit.files.whole_files import lock_file, whole_file

if numba.config.DISABLE_JIT:  # pyrefly: ignore
    raise UsageError(
        "NUMBA_DISABLE_JIT is set in the environment, and bertkit computes in functions that numba compiles: unset it"
    )


class _PartLibrary(JITCodeLibrary):
    """Unoptimized intermediate LLVM module of an inlined helper. numba would optimize and compile each helper alone,
    and again in every caller. Without that, the first text on a new machine takes a fifth less time."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: a helper has no machine code to attach Python objects to."""


class _PartCompiler(Compiler):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), "part")


_LONGEST_WAIT = 60
"""Seconds to wait for the machine code of a function that another process is compiling."""

_compile: Any = partial(numba.njit, nogil=True, error_model="numpy")  # numba's own annotations are less precise


OF_PARTS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _PartCompiler}
"""numba's options for what is compiled with the functions that call it."""


def part(function: Callable, **options: Any) -> Any:
    """The dispatcher of a helper, which is compiled with the functions that call it; it cannot be called
    from Python."""
    return _compile(function, **OF_PARTS, **options)


def kept(function: Callable, **options: Any) -> Any:
    """The dispatcher of a function whose machine code is cached on disk."""
    dispatcher = _compile(function, **options)
    if Path(function.__code__.co_filename).exists():
        dispatcher._cache = _KeptCode(function)
    return dispatcher


class _KeptCode(NullCache):
    """On-disk cache of a function's machine code, with a file for each signature and processor.

    numba's own cache has an index that two processes can write at the same time, losing an entry or mixing up files; it
    cannot read a folder that is not writable, and fails on a full disk. Here a file name contains a hash of everything
    the content depends on, and files are written atomically. Of processes that start together, one compiles a function
    and the others wait for it.
    """

    def __init__(self, function: Callable) -> None:
        file = Path(function.__code__.co_filename)
        self._function, self._folders = function, _folders(file)
        self._name = re.sub(r"\W+", "-", f"{file.stem}.{function.__qualname__}")
        self._state = _source_state(file)
        self._lock = ExitStack()  # held while this process compiles the function

    @property
    def cache_path(self) -> Any:
        """The folder, as a str, for new machine code; None if no folder is writable."""
        for folder in self._folders:
            there = next(path for path in (folder, *folder.parents) if path.exists())
            if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
                return str(folder)
        return None

    def _file_name(self, signature: Any, codegen: Any) -> str:
        code, captured = self._function.__code__, [cell.cell_contents for cell in self._function.__closure__ or ()]
        key = hashlib.sha256(dumps(captured))
        target = (numba.__version__, sys.implementation.cache_tag, codegen.magic_tuple())  # includes the processor
        key.update(repr((str(signature), target, code.co_firstlineno, code.co_code)).encode())
        return f"{self._name}.{self._state}.{key.hexdigest()[:24]}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # all of a refresh that machine code needs; the rest takes most of a second
        name = self._file_name(sig, target_context.codegen())
        code = self._read(name, target_context)
        if code is None and (folder := self.cache_path) is not None:
            self._lock.close()  # of a compilation that failed
            self._lock.enter_context(lock_file(Path(folder, f"{name}.lock"), _LONGEST_WAIT))
            code = self._read(name, target_context)  # of the process that had the lock
            if code is not None:
                self._lock.close()
        return code

    def _read(self, name: str, target_context: Any) -> Any:
        for folder in self._folders:
            with suppress(Exception):  # missing, not readable or damaged
                return CompileResult._rebuild(target_context, *pickle.loads((folder / name).read_bytes()))
        return None

    def save_overload(self, sig: Any, cres: CompileResult) -> None:
        with self._lock:
            if not cres.library.has_dynamic_globals:  # addresses in this process
                self._write(self._file_name(sig, cres.library.codegen), dumps(_reduced(cres)))

    def _write(self, name: str, content: bytes) -> None:
        problems = []
        for folder in self._folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with whole_file(folder / name) as file:
                    file.write_bytes(content)
                for other in folder.glob(f"{self._name}.*.nbc"):
                    if other.name.split(".")[1] != self._state:  # compiled from an earlier version of the source
                        other.unlink(missing_ok=True)
                return
            except OSError as error:
                problems.append(f"{folder}: {error.strerror}")
        _warn_not_kept("; ".join(problems))


def _reduced(result: CompileResult) -> tuple[Any, ...]:
    """The machine code of a function with what its callers from Python need.

    Left out are the intermediate code, for compiled callers, but for the names of the function, and Python objects of
    numba's own functions, which would import their modules.
    """
    (name, kind, (code, _)), description, *others, environments = result._reduce()
    names = description.llvm_func_name, description.llvm_cpython_wrapper_name
    module = llvmlite.binding.parse_assembly("".join(f'@"{each}" = global i8 0\n' for each in names))
    environments = tuple(each for each in environments if not each.globals["__name__"].startswith("numba."))
    return (name, kind, (code, module.as_bitcode())), description, *others, environments


def _folders(file: Path) -> list[Path]:
    """Folders for the machine code of a source file; all are read, and the first writable one is written."""
    subfolder = f"{file.parent.name}_{hashlib.sha256(str(file.parent).encode()).hexdigest()[:16]}"
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(chosen) / subfolder]
    of_user = user_cache()
    return [file.parent / "__pycache__", *([] if of_user is None else [of_user / "machine_code" / subfolder])]


_said: set[str] = set()


def _first_time(topic: str) -> bool:
    first = topic not in _said
    _said.add(topic)
    return first


def _warn_not_kept(problems: str) -> None:
    if _first_time("not kept"):
        warnings.warn(
            f"compiled machine code cannot be kept on disk ({problems}): every process compiles again, which takes up "
            "to a minute; set NUMBA_CACHE_DIR to a writable folder",
            RuntimeWarning,
            stacklevel=2,
        )


class _Notice(Listener):
    """Message on a terminal, printed once, after two seconds of compiling in total; and a second one when the process
    ends, with the number of functions and seconds."""

    def __init__(self) -> None:
        self._depth, self._seconds, self._silent_seconds, self.num_functions = 0, 0.0, 2.0, 0

    def on_start(self, event: Event) -> None:
        if not _is_ours(event):
            return
        self._depth += 1  # compiling a function also compiles those it calls
        if self._depth == 1:
            self._started, self._timer = (
                time.monotonic(),
                threading.Timer(max(0, self._silent_seconds - self._seconds), self._say),
            )
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Event) -> None:
        if not _is_ours(event):
            return
        self._depth -= 1
        self.num_functions += 1
        if self._depth == 0:
            self._timer.cancel()
            self._seconds += time.monotonic() - self._started

    def _say(self) -> None:
        if _first_time("compiling") and sys.stderr is not None and sys.stderr.isatty():
            print("bertkit: compiling functions once for this processor ...", file=sys.stderr, flush=True)
            atexit.register(self._say_sum)

    def _say_sum(self) -> None:
        functions = f"{self.num_functions} function{'s' if self.num_functions > 1 else ''}"
        print(
            f"bertkit: compiled {functions} once for this processor, in {self._seconds:.0f} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _is_ours(event: Event) -> bool:
    return event.data is not None and isinstance(event.data["dispatcher"]._cache, _KeptCode)


_notice = _Notice()
register("numba:compile", _notice)


def num_compiled() -> int:
    """Number of functions, without their parts, that this process compiled; not those that it read from disk."""
    return _notice.num_functions


@cache
def _source_state(file: Path) -> str:
    """Hash of ``file`` and all files of this package that it imports, directly or indirectly, and of this one."""
    files = [file, Path(__file__)]
    known, state = {*files}, hashlib.sha256()
    for each in files:  # grows during iteration
        text, imported = _read_source(each)
        state.update(text)
        for source in imported:
            if source not in known:
                known.add(source)
                files.append(source)
    return state.hexdigest()[:16]


@cache
def _read_source(file: Path) -> tuple[bytes, list[Path]]:
    """The content of a file, and the files of this package that it imports."""
    package, sources = Path(__file__).parent, []
    text = file.read_text(encoding="utf-8")
    for module in re.findall(r"^from bertkit\.([\w.]+) import", text, re.MULTILINE):
        imported = package.joinpath(*module.split("."))
        sources += sorted(imported.glob("*.py")) if imported.is_dir() else [imported.with_suffix(".py")]
    return text.encode(), sources
