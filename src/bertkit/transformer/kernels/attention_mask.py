"""Attention masks for tiled attention, compiled: full, a window before and after, or full with a bias by distance."""

from typing import NamedTuple

import numpy as np
from numba import types

from bertkit.compiled import compiled, overload, part
from bertkit.transformer.kernels.tiles import add_tile, load_tile, times_tile
from bertkit.transformer.kernels.vectors import WIDTH, broadcast, load, where_positive


class FullAttention(NamedTuple):
    """Queries attend to every key of their sequence."""

    beyond_end: np.ndarray  # 0 for a key of the sequence, -inf after its last, up to whole vectors


class SlidingWindow(NamedTuple):
    """Queries attend to keys up to ``before`` tokens before them and up to ``after`` tokens after them: equal in a
    local layer, ``after`` 0 in a causal one."""

    beyond_end: np.ndarray  # as above
    before: int
    after: int
    near: np.ndarray  # 1 if a key is near, else 0; index MARGIN + before + d for a key d tokens after its query


class DistanceBias(NamedTuple):
    """Queries attend to every key of their sequence, with a bias by distance added to the scores."""

    beyond_end: np.ndarray  # as above
    by_distance: np.ndarray  # of one head; index len // 2 + d for a key d tokens after its query


MARGIN = 2 * WIDTH
"""Maximum distance of keys in a tile beyond the window, on each side."""


def mask_of(length, window, bias):
    """DistanceBias with a bias, SlidingWindow with a window, else FullAttention, for sequences of up to ``length``
    tokens; the caller fills ``beyond_end`` (compiled only)."""
    raise NotImplementedError


@overload(mask_of)
def _mask_of(length, window, bias):
    if not isinstance(bias, types.NoneType):
        return _biased
    return _whole if isinstance(window, types.NoneType) else _window


def _whole(length, window, bias):
    return FullAttention(np.empty(length, np.float32))


def _biased(length, window, bias):
    return DistanceBias(np.empty(length, np.float32), np.empty(bias.shape[1], np.float32))


def _window(length, window, bias):
    seen = window.before + window.after + 1
    near = np.zeros(2 * MARGIN + seen, np.float32)
    near[MARGIN : MARGIN + seen] = 1
    return SlidingWindow(np.empty(length, np.float32), window.before, window.after, near)


@part
def choose_head(mask, bias, head):
    """Select the bias of a head in a DistanceBias."""
    if bias is not None:
        mask.by_distance[:] = bias[head]


def key_range(mask, query, num_queries, length):
    """Range of the keys that any of the queries attend to, its start rounded down to whole vectors (compiled only)."""
    raise NotImplementedError


@overload(key_range)
def _key_range(mask, query, num_queries, length):
    return _keys_near if mask.instance_class is SlidingWindow else _every_key


def _every_key(mask, query, num_queries, length):
    return 0, length


def _keys_near(mask, query, num_queries, length):
    return max(0, query - mask.before) // WIDTH * WIDTH, min(length, query + num_queries + mask.after)


def mask_scores(tile, mask, query, num_queries, key):
    """Mask scores of eight queries and the keys from ``key`` on with -inf, and add their bias (compiled only)."""
    raise NotImplementedError


@overload(mask_scores)
def _mask_scores(tile, mask, query, num_queries, key):
    if mask.instance_class is DistanceBias:
        return _with_bias
    return _as_it_is if mask.instance_class is FullAttention else _hidden


def _as_it_is(tile, mask, query, num_queries, key):
    return tile


def _with_bias(tile, mask, query, num_queries, key):
    at = len(mask.by_distance) // 2 + key - query
    return add_tile(tile, load_tile(mask.by_distance, at, -1))


def _hidden(tile, mask, query, num_queries, key):
    near, unseen = _near_tile(mask, query, num_queries, key), broadcast(np.float32(-np.inf))
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


def mask_weights(tile, mask, query, num_queries, key):
    """Set weights of masked keys to exactly 0, as ``exp2`` leaves a small rest (compiled only)."""
    raise NotImplementedError


@overload(mask_weights)
def _mask_weights(tile, mask, query, num_queries, key):
    return _zeroed if mask.instance_class is SlidingWindow else _as_it_is


def _zeroed(tile, mask, query, num_queries, key):
    return times_tile(tile, _near_tile(mask, query, num_queries, key))


@compiled
def _near_tile(mask, query, num_queries, key):
    """Eight vectors of 1 and 0. Rows beyond the last query repeat its mask, so that every row has keys."""
    at, last = MARGIN + mask.before + key - query, num_queries - 1
    return (
        load(mask.near, at),
        load(mask.near, at - min(1, last)),
        load(mask.near, at - min(2, last)),
        load(mask.near, at - min(3, last)),
        load(mask.near, at - min(4, last)),
        load(mask.near, at - min(5, last)),
        load(mask.near, at - min(6, last)),
        load(mask.near, at - min(7, last)),
    )
