"""Tiles for attention, compiled: tuples of eight vectors, one for each of eight queries."""

from bertkit.compiled import part
from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
from bertkit.transformer.kernels.vector_functions import exp2
from bertkit.transformer.kernels.vectors import add_pairs, broadcast_from, fma, lane, larger, load, store

QUERIES = 8
"""Queries of a tile."""

_HOLDS_TILE = has_wide_registers()
"""Whether the registers hold a tile."""


@part
def in_tile(v):
    """The vector eight times."""
    return v, v, v, v, v, v, v, v


@part
def _add_to_four(tile, column, at, stride, row):
    """`add_products` of four queries."""
    return (
        fma(broadcast_from(column, at), row, tile[0]),
        fma(broadcast_from(column, at + stride), row, tile[1]),
        fma(broadcast_from(column, at + 2 * stride), row, tile[2]),
        fma(broadcast_from(column, at + 3 * stride), row, tile[3]),
    )


@part
def add_products(tile, column, at, stride, row):
    """tile + column x row: eight numbers, ``stride`` apart in an array from ``at`` on, each times the vector."""
    upper = _add_to_four(tile[:4], column, at, stride, row)
    return upper + _add_to_four(tile[4:], column, at + 4 * stride, stride, row)


@part
def add_matrix(tile, columns, at, step, stride, rows, index, width, count):
    """tile + columns x rows: `add_products` of ``count`` columns, ``step`` apart from ``at`` on, and a vector of each
    row, ``width`` apart from ``index`` on.

    With AVX2 half the sums at a time: eight vectors would not stay in its sixteen registers.
    """
    if _HOLDS_TILE:
        for number in range(count):
            tile = add_products(tile, columns, at + number * step, stride, load(rows, index + number * width))
        return tile
    upper, lower = tile[:4], tile[4:]
    for number in range(count):
        upper = _add_to_four(upper, columns, at + number * step, stride, load(rows, index + number * width))
    at += 4 * stride
    for number in range(count):
        lower = _add_to_four(lower, columns, at + number * step, stride, load(rows, index + number * width))
    return upper + lower


@part
def add_pair_products(tile, column, at, stride, row):
    """`add_products` of numbers that hold two bfloat16 each, lane by lane: both products are added."""
    return (
        add_pairs(row, broadcast_from(column, at), tile[0]),
        add_pairs(row, broadcast_from(column, at + stride), tile[1]),
        add_pairs(row, broadcast_from(column, at + 2 * stride), tile[2]),
        add_pairs(row, broadcast_from(column, at + 3 * stride), tile[3]),
        add_pairs(row, broadcast_from(column, at + 4 * stride), tile[4]),
        add_pairs(row, broadcast_from(column, at + 5 * stride), tile[5]),
        add_pairs(row, broadcast_from(column, at + 6 * stride), tile[6]),
        add_pairs(row, broadcast_from(column, at + 7 * stride), tile[7]),
    )


@part
def powers_of_2(scores, at, stride, scale, tops):
    """2**((score - top) * scale), eight vectors of scores from ``at`` on, with a top for each.

    Of the top the power is exactly 1, however large it is: a product with the scale is rounded before it is subtracted.
    """
    return (
        exp2((load(scores, at) - tops[0]) * scale),
        exp2((load(scores, at + stride) - tops[1]) * scale),
        exp2((load(scores, at + 2 * stride) - tops[2]) * scale),
        exp2((load(scores, at + 3 * stride) - tops[3]) * scale),
        exp2((load(scores, at + 4 * stride) - tops[4]) * scale),
        exp2((load(scores, at + 5 * stride) - tops[5]) * scale),
        exp2((load(scores, at + 6 * stride) - tops[6]) * scale),
        exp2((load(scores, at + 7 * stride) - tops[7]) * scale),
    )


@part
def store_tile(array, at, stride, tile):
    """Store eight vectors, ``stride`` apart from ``at`` on."""
    store(array, at, tile[0])
    store(array, at + stride, tile[1])
    store(array, at + 2 * stride, tile[2])
    store(array, at + 3 * stride, tile[3])
    store(array, at + 4 * stride, tile[4])
    store(array, at + 5 * stride, tile[5])
    store(array, at + 6 * stride, tile[6])
    store(array, at + 7 * stride, tile[7])


@part
def add_tile(a, b):
    """a + b."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5], a[6] + b[6], a[7] + b[7]


@part
def times_tile(a, b):
    """a * b."""
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3], a[4] * b[4], a[5] * b[5], a[6] * b[6], a[7] * b[7]


@part
def larger_tile(a, b):
    """The larger of a and b."""
    return (
        larger(a[0], b[0]),
        larger(a[1], b[1]),
        larger(a[2], b[2]),
        larger(a[3], b[3]),
        larger(a[4], b[4]),
        larger(a[5], b[5]),
        larger(a[6], b[6]),
        larger(a[7], b[7]),
    )


@part
def eight_lanes(v):
    """Results 0 to 7 of ``totals_of_eight`` or ``largest_of_eight``, each in a separate vector."""
    return lane(v, 0), lane(v, 2), lane(v, 4), lane(v, 6), lane(v, 8), lane(v, 10), lane(v, 12), lane(v, 14)


@part
def load_tile(array, at, stride):
    """Load eight vectors, ``stride`` apart from ``at`` on."""
    return (
        load(array, at),
        load(array, at + stride),
        load(array, at + 2 * stride),
        load(array, at + 3 * stride),
        load(array, at + 4 * stride),
        load(array, at + 5 * stride),
        load(array, at + 6 * stride),
        load(array, at + 7 * stride),
    )


@part
def add_mixture(vector, column, at, stride, tile):
    """vector + column . tile: eight numbers, ``stride`` apart in an array from ``at`` on, each times its vector."""
    even = fma(broadcast_from(column, at), tile[0], vector)
    odd = broadcast_from(column, at + stride) * tile[1]
    even = fma(broadcast_from(column, at + 2 * stride), tile[2], even)
    odd = fma(broadcast_from(column, at + 3 * stride), tile[3], odd)
    even = fma(broadcast_from(column, at + 4 * stride), tile[4], even)
    odd = fma(broadcast_from(column, at + 5 * stride), tile[5], odd)
    even = fma(broadcast_from(column, at + 6 * stride), tile[6], even)
    return even + fma(broadcast_from(column, at + 7 * stride), tile[7], odd)
