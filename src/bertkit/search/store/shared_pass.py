"""Searches that arrive together are run as one."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

Asked = TypeVar("Asked")
Result = TypeVar("Result")

QUIET = 0.0005
"""Seconds without a new search after which a run starts, if searches arrive together."""
SHARE_WAITED = 0.3
"""Maximum time that a run waits for more searches, as a share of the time of the last run."""
RUNS_WAITED = 3.0
"""The same for searches whose query is being embedded: a pass next to the embedding delays both."""


@dataclass(eq=False)
class _Waiting:
    key: Hashable
    asked: Any
    outcome: Any = None  # result or error
    turn: Future[bool] = field(default_factory=Future)  # True: the outcome is set; False: this thread runs the next


class SharedPasses:
    """Runs one search at a time; searches that arrive during a run share the next one, if their keys are equal.

    The thread of the first waiting search runs it for all with the same key. If others shared the last run, it waits a
    moment (0.5 ms) for more, and longer for those that are expected, as one pass over the vectors for all takes less
    time than two.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: list[_Waiting] = []
        self._is_busy = False
        self._seconds = 0.0  # of the last run
        self._is_shared = False  # or waited for, the last run
        self._num_expected = 0

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Announce a search that comes after the block, in which its query is embedded: a run waits for it."""
        with self._changed:
            self._num_expected += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_expected -= 1

    def share(self, key: Hashable, asked: Asked, run: Callable[[list[Asked]], Sequence[Result | Exception]]) -> Result:
        """The result of ``run`` for ``asked``, from a run that others may share.

        Args:
            run: returns a result or an error for each of several requests; the same function for equal keys.

        Raises:
            Exception: the error of this request, or an error that ``run`` raised.
        """
        mine = _Waiting(key, asked)
        with self._changed:
            self._line.append(mine)
            self._changed.notify_all()
            leads, self._is_busy = not self._is_busy, True
        try:
            is_served = not leads and mine.turn.result()
        except BaseException:  # Ctrl-C
            with self._changed:
                self._line = [one for one in self._line if one is not mine]
                if mine.turn.done() and not mine.turn.result():
                    self._start_next()
            raise
        if not is_served:
            self._run(mine, run)
        if isinstance(mine.outcome, BaseException):
            raise mine.outcome
        return mine.outcome

    def _run(self, mine: _Waiting, run: Callable[[list[Any]], Sequence[Any]]) -> None:
        served, started = [mine], time.perf_counter()
        try:
            served = self._with_others(mine)
            started = time.perf_counter()
            outcomes = run([one.asked for one in served])
        except BaseException as error:
            outcomes = [error] * len(served)
        for one, outcome in zip(served, outcomes, strict=True):
            one.outcome = outcome
            if one is not mine:
                one.turn.set_result(True)
        with self._changed:
            self._line = [one for one in self._line if one not in served]
            self._is_shared = len(served) + len(self._line) > 1
            self._seconds = time.perf_counter() - started
            self._start_next()

    def _with_others(self, mine: _Waiting) -> list[_Waiting]:
        with self._changed:
            share = RUNS_WAITED if self._num_expected else SHARE_WAITED * self._is_shared
            latest = time.perf_counter() + share * self._seconds
            while (seconds := latest - time.perf_counter()) > 0:
                if not (self._changed.wait(min(QUIET, seconds)) or self._num_expected):
                    break
            served = [one for one in self._line if one.key == mine.key]
            self._line = [one for one in self._line if one.key != mine.key]
        return served

    def _start_next(self) -> None:
        if self._line:
            self._line[0].turn.set_result(False)
        else:
            self._is_busy = False
