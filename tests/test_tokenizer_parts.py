"""Texts in parts: boundaries, order of results from threads, concatenation."""

import random
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.tokenizer.engine import RING
from bertkit.tokenizer.parts import Joined, Room, borders, in_order


@given(st.lists(st.integers(0, 700_000), max_size=30), st.integers(0, 9))
def test_parts_hold_every_text_once(lengths: list[int], first: int) -> None:
    starts = np.cumsum([first, *lengths])
    results = borders(starts)
    assert results[0] == 0 and results[-1] == len(lengths)
    for start, end in pairwise(results):
        assert start < end or not lengths
        # Only a part's last text reaches beyond the 256 KB.
        assert end - start <= 1 or starts[end - 1] - starts[start] <= 1 << 18


@pytest.mark.full
@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.sampled_from([(), (3,)]))
def test_joined_rows_equal_their_parts(lengths: list[int], row_shape: tuple[int, ...]) -> None:
    """Parts of any lengths: longer and shorter than the first ones let expect, and empty ones."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 1 << 30, (length, *row_shape), dtype=np.int32) for length in lengths]
    joined = Joined(len(parts), row_shape)
    for number, part in enumerate(parts):
        assert joined.length == sum(lengths[:number])
        joined.append(part)
    whole = joined.whole()
    assert whole.dtype == np.int32 and whole.base is None  # and no more memory than its own
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_results_are_ordered_and_valid_until_the_next(num_threads: int) -> None:
    """Work of uneven length, whose result is overwritten as soon as another part is given the same room."""
    rng = random.Random(0)
    pauses = [rng.choice((0.0, 0.0, 0.004)) for _ in range(60)]
    rooms = []

    def work(first: int, last: int, room: Room) -> tuple[int, int, np.ndarray]:
        time.sleep(pauses[first])
        ids, _ = room.arrays(7, with_spans=False)
        ids[:] = first
        rooms.append(room)
        return first, last, ids

    expected = list(pairwise(range(61)))
    for (first, last, ids), part in zip(in_order(work, range(61), num_threads), expected, strict=True):
        time.sleep(0.001 * (first % 3 == 0))
        assert (first, last) == part and (ids == first).all()
    assert len(set(map(id, rooms))) <= 2 * num_threads


@pytest.mark.parametrize("num_threads", [1, 3])
def test_first_error_in_order_is_the_one_raised(num_threads: int) -> None:
    """Part 9 fails at once, part 7 later; few of the thousand parts are begun in vain, and no thread is left."""
    begun = []

    def work(first: int, last: int, room: Room) -> int:
        begun.append(first)
        if first == 7:
            time.sleep(0.02)
        if first in (7, 9):
            raise ValueError(f"part {first}")
        return first

    threads = threading.active_count()
    results = []
    with pytest.raises(ValueError, match="part 7"):
        for result in in_order(work, range(1_001), num_threads):
            results.append(result)
    assert results == list(range(7))
    assert len(begun) <= 7 + 2 * num_threads
    assert threading.active_count() == threads


def test_room_grows_and_is_reused() -> None:
    room = Room()
    ids, spans = room.arrays(5, with_spans=False)
    assert len(ids) >= 5 and len(spans) == RING  # which says that spans are not wanted
    ids, spans = room.arrays(5, with_spans=True)
    assert len(ids) >= 5 and len(spans) > RING
    ids, spans = room.arrays(1_000, with_spans=True)
    assert len(ids) >= 1_000 and spans.shape[0] >= 1_000 and spans.shape[1:] == (3,)
    again = room.arrays(999, with_spans=True)
    assert again[0] is ids and again[1] is spans
