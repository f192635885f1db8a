"""Concurrent searches share one pass over the vectors."""

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from bertkit.neighbors import SCANS, Nearest, RowMask, nearest
from bertkit.search.embedded.view import View

QUIET = 0.002
"""Seconds without a new search after which a pass starts, if searches arrive together."""
SHARE_WAITED = 0.3
"""Maximum time that a pass waits for more searches, as a share of the time of the last pass."""


@dataclass
class _Waiting:
    view: View
    mask: RowMask
    queries: np.ndarray
    k: int
    results: Future = field(default_factory=Future)  # None: this thread runs the next pass

    def shares_with(self, other: "_Waiting") -> bool:
        if SCANS[self.view.state.scan].is_exact:  # the same for a larger k
            return self.view is other.view and self.mask is other.mask
        return self.view is other.view and self.mask is other.mask and self.k == other.k


class SharedPasses:
    """Runs one pass at a time; searches that arrive during a pass share the next one.

    The thread of the first waiting search runs the pass for all compatible ones. If the last pass had company, it waits
    a moment (2 ms) for others, as one pass for all takes less time than two.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: list[_Waiting] = []
        self._is_busy = False
        self._longest_wait = 0.0  # seconds; 0 after a pass that nobody shared or waited for

    def search(self, view: View, mask: RowMask, queries: np.ndarray, k: int) -> list[Nearest]:
        """See `nearest`."""
        mine = _Waiting(view, mask, queries, k)
        with self._changed:
            self._line.append(mine)
            self._changed.notify_all()
            leads, self._is_busy = not self._is_busy, True
        if not leads and (results := mine.results.result()) is not None:
            return results
        return self._pass(mine)

    def _pass(self, mine: _Waiting) -> list[Nearest]:
        with self._changed:
            latest = time.perf_counter() + self._longest_wait
            while (seconds := latest - time.perf_counter()) > 0 and self._changed.wait(min(QUIET, seconds)):
                pass
            served = [one for one in self._line if one.shares_with(mine)]
            self._line = [one for one in self._line if not one.shares_with(mine)]
        started = time.perf_counter()
        try:
            k = max(one.k for one in served)
            queries = np.concatenate([one.queries for one in served])
            view = mine.view
            state = view.state
            nearest_rows = nearest(
                queries, view.vectors, view.blocks, k, state.identity.similarity, mine.mask, state.scan
            )
            start, own = 0, []
            for one in served:
                part = [each.first(one.k) for each in nearest_rows[start : start + len(one.queries)]]
                start += len(one.queries)
                if one is mine:
                    own = part
                else:
                    one.results.set_result(part)
            return own
        except BaseException as error:
            for one in served:
                if one is not mine and not one.results.done():
                    one.results.set_exception(error)
            raise
        finally:
            with self._changed:
                has_company = len(served) + len(self._line) > 1
                self._longest_wait = SHARE_WAITED * (time.perf_counter() - started) if has_company else 0.0
                if self._line:
                    self._line[0].results.set_result(None)
                else:
                    self._is_busy = False
