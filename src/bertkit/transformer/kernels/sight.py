"""Which keys a query sees in tile attention, compiled: its whole sequence, or a window of it."""

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from bertkit.compiled import compiled
from bertkit.transformer.kernels.tiles import times_tile
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, load, where_positive


class Whole(NamedTuple):
    """Queries see every key of their sequence."""

    beyond_end: np.ndarray  # 0 for a key of the sequence, -inf after its last, up to whole vectors


class Window(NamedTuple):
    """Queries see the keys that are at most ``reach`` tokens away."""

    beyond_end: np.ndarray  # as above
    reach: int
    near: np.ndarray  # 1 where a key is near, else 0; a key d tokens after its query stands at MARGIN + reach + d


MARGIN = 2 * WIDTH
"""How far beyond its window, to each side, the keys of a tile may lie."""


def sight_of(room, window):
    """A Window, or Whole where that is None, for sequences of up to ``room`` tokens, their ``beyond_end`` still to be
    filled (compiled only)."""
    raise NotImplementedError


@overload(sight_of)
def _sight_of(room, window):
    return _whole if isinstance(window, types.NoneType) else _window


def _whole(room, window):
    return Whole(np.empty(room, np.float32))


def _window(room, window):
    near = np.zeros(2 * (MARGIN + window), np.float32)
    near[MARGIN : MARGIN + 2 * window + 1] = 1
    return Window(np.empty(room, np.float32), window, near)


def keys_seen(sight, query, num_queries, length):
    """First, rounded down to whole vectors, and end of the keys that some of the queries see (compiled only)."""
    raise NotImplementedError


@overload(keys_seen)
def _keys_seen(sight, query, num_queries, length):
    return _every_key if sight.instance_class is Whole else _keys_near


def _every_key(sight, query, num_queries, length):
    return 0, length


def _keys_near(sight, query, num_queries, length):
    return max(0, query - sight.reach) // WIDTH * WIDTH, min(length, query + num_queries + sight.reach)


def hide_far(tile, sight, query, num_queries, key):
    """The scores of eight queries and the keys from ``key`` on, -inf for those not seen (compiled only)."""
    raise NotImplementedError


@overload(hide_far)
def _hide_far(tile, sight, query, num_queries, key):
    return _as_it_is if sight.instance_class is Whole else _hidden


def _as_it_is(tile, sight, query, num_queries, key):
    return tile


def _hidden(tile, sight, query, num_queries, key):
    near, unseen = _near_tile(sight, query, num_queries, key), broadcast(np.float32(-np.inf))
    return (
        where_positive(near[0], tile[0], unseen),
        where_positive(near[1], tile[1], unseen),
        where_positive(near[2], tile[2], unseen),
        where_positive(near[3], tile[3], unseen),
        where_positive(near[4], tile[4], unseen),
        where_positive(near[5], tile[5], unseen),
        where_positive(near[6], tile[6], unseen),
        where_positive(near[7], tile[7], unseen),
    )


def zero_far(tile, sight, query, num_queries, key):
    """Their weights, exactly 0 for keys not seen, where ``exp2`` leaves a little (compiled only)."""
    raise NotImplementedError


@overload(zero_far)
def _zero_far(tile, sight, query, num_queries, key):
    return _as_it_is if sight.instance_class is Whole else _zeroed


def _zeroed(tile, sight, query, num_queries, key):
    return times_tile(tile, _near_tile(sight, query, num_queries, key))


@compiled
def _near_tile(sight, query, num_queries, key):
    """Eight vectors of 1 and 0. A row beyond the last query sees what that one sees: no row is without keys."""
    at, last = MARGIN + sight.reach + key - query, num_queries - 1
    return (
        load(sight.near, at),
        load(sight.near, at - min(1, last)),
        load(sight.near, at - min(2, last)),
        load(sight.near, at - min(3, last)),
        load(sight.near, at - min(4, last)),
        load(sight.near, at - min(5, last)),
        load(sight.near, at - min(6, last)),
        load(sight.near, at - min(7, last)),
    )
