"""Concurrent searches share one pass over the vectors."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from bertkit.neighbors import SCANS, Nearest, RowMask, nearest
from bertkit.search.embedded.view import View

MOMENT = 0.001
"""Maximum seconds to wait for as many searches as the last pass served."""


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

    The thread of the first waiting search runs the pass for all compatible ones. A single search never waits.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: list[_Waiting] = []
        self._is_busy = False
        self._last_served = 1

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
            expected = self._last_served
            self._changed.wait_for(lambda: len(self._line) >= expected, MOMENT)
            served = [one for one in self._line if one.shares_with(mine)]
            self._line = [one for one in self._line if not one.shares_with(mine)]
            self._last_served = len(served)
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
                if self._line:
                    self._line[0].results.set_result(None)
                else:
                    self._is_busy = False
