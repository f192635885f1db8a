"""Searches that arrive together and share a pass over the vectors."""

import threading
import time

import pytest

from bertkit.search.store import shared_pass
from bertkit.search.store.shared_pass import SharedPasses


def test_a_run_waits_for_expected_searches_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, sizes = SharedPasses(), []

    def run(asked: list[int]) -> list[int]:
        sizes.append(len(asked))
        time.sleep(0.1)
        return [2 * one for one in asked]

    assert passes.share(None, 1, run) == 2
    thread = threading.Thread(target=passes.share, args=(None, 2, run))
    with passes.expected():
        thread.start()
        while not passes._is_busy:  # the search of the thread waits for the next one
            time.sleep(0.001)
        assert passes.share(None, 3, run) == 6
        thread.join()
        started = time.perf_counter()
        assert passes.share(None, 4, run) == 8
        assert 0.39 < time.perf_counter() - started < 99  # it does not wait forever
    monkeypatch.setattr(shared_pass, "RUNS_WAITED", 9_999.0)
    started = time.perf_counter()
    passes.share(None, 5, run)
    assert time.perf_counter() - started < 99  # nothing is expected any more
    assert sizes == [1, 2, 1, 1]
