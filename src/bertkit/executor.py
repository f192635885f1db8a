"""The executor: one long-lived pool of threads that owns the cores.

Takes: functions to call, from any thread.
Gives: their results, in the order given or as futures.
May import: later.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from bertkit.later import is_torch_loaded, torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor:
    """Pool of threads that each compute on one core, shared by every caller in the process.

    Several calls that share the cores finish sooner than one call at a time that occupies all of them: threads inside
    one short matrix product spend most of their time waiting for each other.

    Args:
        num_threads: number of threads, one for each core.
        cores: for threads that wait most of the time, more than there are cores: what `map_on_cores` uses when one of
            them calls it.
    """

    def __init__(self, num_threads: int, cores: Executor | None = None) -> None:
        self.num_threads = num_threads

        def start() -> None:
            _thread.cores = cores
            compute_on_one_core()

        self._pool = ThreadPoolExecutor(num_threads, "bertkit", initializer=start)
        self._lock = threading.Lock()
        self._num_callers = 0  # calls in progress

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Call ``work(*arguments)`` on one of the threads, as soon as one is free."""
        return self._pool.submit(work, *arguments)

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results of ``work(item)``, in the order of the items, computed a few items ahead of the consumer."""
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self.submit(work, item))
                if len(waiting) > 2 * self.num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    @contextmanager
    def call(self) -> Iterator[bool]:
        """Register a call while the block runs. Yields True if it is the only call, which may use every core."""
        with self._lock:
            self._num_callers += 1
            is_alone = self._num_callers == 1
        try:
            yield is_alone
        finally:
            with self._lock:
                self._num_callers -= 1


def executor() -> Executor:
    """The executor of the process, with `num_threads` of the calling thread."""
    key = num_threads(), is_torch_loaded()
    with _lock:
        if key not in _executors:
            _executors[key] = Executor(key[0])
        return _executors[key]


def num_threads() -> int:
    """The number of threads that a step of the calling thread uses: what torch is set to, or before it is imported
    will be."""
    is_limited = getattr(_thread, "is_limited", False)
    if not is_torch_loaded():
        return 1 if is_limited else _default_num_threads()
    if is_limited:  # before torch was imported
        compute_on_one_core()
    return torch.get_num_threads()


@cache
def _default_num_threads() -> int:
    """OMP_NUM_THREADS, or the number of physical cores that this process may use."""
    if (number := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        return max(1, int(number))
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    files = (Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list") for cpu in os.sched_getaffinity(0))
    return len({file.read_text() if file.is_file() else str(file) for file in files})


def map_on_cores(
    work: Callable[[Item], Result], items: Iterable[Item], device: torch.device | None = None
) -> Iterator[Result]:
    """The results of ``work(item)``, in the order of the items: one core per item; sequentially on a GPU.

    A thread limited to one core, such as the executor's own, computes sequentially, unless its executor has cores.
    """
    if device is not None and device.type != "cpu":
        return map(work, items)
    if (cores := getattr(_thread, "cores", None)) is not None:
        return cores.map(work, items)
    return map(work, items) if num_threads() == 1 else executor().map(work, items)


def num_cores() -> int:
    """Number of cores that `map_on_cores` uses when the calling thread calls it on the CPU."""
    cores = getattr(_thread, "cores", None)
    return num_threads() if cores is None else cores.num_threads


_thread = threading.local()
_executors: dict[tuple[int, bool], Executor] = {}
_lock = threading.Lock()


def compute_on_one_core() -> Callable[[], None]:
    """Limit matrix products on this thread to one core, without affecting other threads; returns what lifts the limit.

    ``torch.set_num_threads`` would also set the default of threads that start later. OpenMP and, if torch was built
    with it, MKL are called directly; their settings are per thread.
    """
    _thread.is_limited = not is_torch_loaded()
    if _thread.is_limited:
        return lambda: setattr(_thread, "is_limited", False)
    torch.get_num_threads()  # torch applies its default at the first call in a thread, which would undo the lines below
    limited = _openmp().limit(limits=1)
    set_mkl = _mkl_setter()
    before = set_mkl(1) if set_mkl else 0

    def lift() -> None:
        limited.restore_original_limits()
        if set_mkl:
            set_mkl(before)

    return lift


@contextmanager
def on_one_core() -> Iterator[None]:
    """`compute_on_one_core` while the block runs."""
    lift = compute_on_one_core()
    try:
        yield
    finally:
        lift()


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")


@cache
def _mkl_setter() -> Callable[[int], int] | None:
    """MKL's function that sets the number of threads of the calling thread; None for a torch without MKL."""
    for library in (Path(torch.__file__).parent / "lib").glob("*torch_cpu.*"):
        with suppress(OSError, AttributeError):
            return ctypes.CDLL(str(library)).MKL_Set_Num_Threads_Local
    return None


def _after_fork() -> None:
    """Start a new pool in a forked child, which lacks the parent's threads; OpenMP would wait for its own."""
    global _lock
    if _executors:
        _executors.clear()
        if is_torch_loaded():
            torch.set_num_threads(1)
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
