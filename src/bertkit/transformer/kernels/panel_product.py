"""Products of many rows with packed weights, compiled: one order of summation for any number of rows and threads.

Weights are packed once in panels of `PANEL` outputs: ``(N / PANEL, K, PANEL)`` float32 or bfloat16, which is widened;
``(N / PANEL, K / 2, PANEL, 2)`` pairs of bfloat16; or ``(N / PANEL, K / 4, PANEL, 4)`` int8. A tile of a few rows times
a panel keeps its sums in registers, and adds the products of 32 bits of each row at a time, in the order of the inputs.

Sums of 8-bit products are integers and exact. Processors that cannot add four products at once (VNNI) add six of them
in 16 bits: there rows and weights are rounded so that those cannot overflow (`weight_scales`).

Shape letters: M rows, K inputs, N outputs.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import compiled, overload
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE, WORDS_AT_ONCE, adds_in_16_bits
from bertkit.transformer.kernels.product_tiles import MANY_ROWS, PANEL, many_rows, multiply_tile
from bertkit.transformer.kernels.rows import read, write
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.kernels.vector_functions import ADD, PLAIN, activated
from bertkit.transformer.kernels.vectors import WIDTH, difference_of_integers, load, rounded_as

_BLOCK_ROWS, _BLOCK_PANELS = 48, 256 // PANEL
"""Rows and panels that a thread multiplies at a time: they stay in its second-level cache."""


class FloatPanels(NamedTuple):
    """Weights in float32 or bfloat16."""

    packed: np.ndarray  # (N / PANEL, K, PANEL), or pairs (N / PANEL, K / 2, PANEL, 2); N and K rounded up, with zeros
    bias: np.ndarray  # (N,) in the dtype of products, rounded up: bfloat16 for pairs, else float32


class RoundedPanels(NamedTuple):
    """Weights in 8 bits."""

    packed: np.ndarray  # (N / PANEL, K / 4, PANEL, 4) int8, N and K rounded up, with zeros
    offsets: np.ndarray  # (N,) float32 with the bits of int32: the product for a row of 128; rounded up
    scales: np.ndarray  # (N,) float32, rounded up


def weight_scales(weight: np.ndarray) -> np.ndarray:
    """(N,) scales for rounding (N, K) weights to 8 bits: to 127 at most; where products are added in 16 bits, so that
    those of the positive, or the negative, weights of a sum stay below 2^15."""
    largest = np.abs(weight).max(axis=1) / np.float32(127)
    if adds_in_16_bits():
        missing = -weight.shape[1] % (4 * WORDS_AT_ONCE)
        sums = np.pad(weight, [(0, 0), (0, missing)]).reshape(len(weight), -1, WORDS_AT_ONCE, 2, 2)
        most = np.float32(2**15 // LARGEST_BYTE - WORDS_AT_ONCE)  # rounding adds at most a half to each of six
        for part in (np.maximum(sums, 0), np.maximum(-sums, 0)):
            largest = np.maximum(largest, part.sum(axis=(2, 4)).max(axis=(1, 2)) / most)
    return np.maximum(largest, np.float32(1e-30))


def float_panels(weight: np.ndarray, bias: np.ndarray | None) -> FloatPanels:
    """(N, K) weights in float32 or bfloat16, and a bias in float32 or zeros."""
    return FloatPanels(_panels(weight, 1)[..., 0], _padded(np.zeros(len(weight), np.float32) if bias is None else bias))


def pair_panels(weight: np.ndarray, bias: np.ndarray | None) -> FloatPanels:
    """(N, K) weights, and a bias or zeros, in bfloat16."""
    return FloatPanels(_panels(weight, 2), _padded(np.zeros(len(weight), np.uint16) if bias is None else bias))


def rounded_panels(rounded: np.ndarray, scales: np.ndarray) -> RoundedPanels:
    """(N, K) int8 weights and their (N,) scales."""
    offsets = _padded(128 * rounded.sum(axis=1, dtype=np.int32))
    return RoundedPanels(_panels(rounded, 4), offsets.view(np.float32), _padded(scales))


def _padded(numbers: np.ndarray) -> np.ndarray:
    """(N, ...) with zeros up to whole panels."""
    return np.pad(numbers, [(0, -len(numbers) % PANEL)] + [(0, 0)] * (numbers.ndim - 1))


_LINE_BYTES = 64
"""Bytes of a line of a cache."""


def _panels(weight: np.ndarray, inputs: int) -> np.ndarray:
    """(N, K) to (N / PANEL, K / inputs, PANEL, inputs), in memory aligned to the lines of caches."""
    padded = np.pad(_padded(weight), [(0, 0), (0, -weight.shape[1] % inputs)])
    panels = padded.reshape(-1, PANEL, padded.shape[1] // inputs, inputs).transpose(0, 2, 1, 3)
    memory = np.empty(panels.nbytes + _LINE_BYTES, np.uint8)
    aligned = memory[-memory.ctypes.data % _LINE_BYTES :][: panels.nbytes].view(panels.dtype).reshape(panels.shape)
    aligned[...] = panels
    return aligned


@compiled
def multiply_panels(panels, counters, rows, then, residual, out):
    """``out = x W^T``: a share of the work on this thread, the rest on others that call it with the same arguments.

    Args:
        panels: `FloatPanels`; or `RoundedPanels`: (rows - 128) are multiplied, and columns by the scales of weights.
        counters: (2,) int64 zeros.
        rows: (M, K) float32, or two bfloat16 or four uint8 in the bits of each.
        then: for `FloatPanels` one of PLAIN to RELU; activations are of numbers in the dtype of the bias.
        residual: (M, N), read for ADD only.
        out: (M, N), in 8 bits float32.
    """
    num_rows, num_outputs = out.shape
    num_panels, num_words = len(panels.packed), panels.packed.shape[1]
    groups = (num_panels + _BLOCK_PANELS - 1) // _BLOCK_PANELS
    num_units = (num_rows + _BLOCK_ROWS - 1) // _BLOCK_ROWS * groups
    sums, step, tile_rows = np.empty(MANY_ROWS * PANEL, np.float32), np.intp(0), many_rows(panels.packed)
    packed, nothing = np.intp(panels.packed.ctypes.data), np.intp(0)
    unit = claim(counters, step)
    while unit < num_units:
        first_row, first_panel = unit // groups * _BLOCK_ROWS, unit % groups * _BLOCK_PANELS
        end_row = min(first_row + _BLOCK_ROWS, num_rows)
        for panel in range(first_panel, min(first_panel + _BLOCK_PANELS, num_panels)):
            weights = packed + panel * panels.packed.strides[0]
            for row in range(first_row, end_row, tile_rows):
                multiply_tile(
                    panels.packed, panels[1], rows[row:], nothing, nothing, tile_rows, weights, num_words, sums, False,
                    None, None,
                )  # fmt: skip
                # All cases in one function would be too much for LLVM to inline: calls take a tenth of the time.
                for r in range(min(tile_rows, end_row - row)):
                    for c in range(0, min(PANEL, num_outputs - panel * PANEL), WIDTH):
                        column = panel * PANEL + c
                        vector = _finished(panels, load(sums, r * PANEL + c), column)
                        if then == ADD:
                            vector = vector + read(residual, row + r, column)
                        elif then != PLAIN:
                            vector = activated(rounded_as(panels[1], vector), then)
                        write(out, row + r, column, vector)
        finish(counters, step)
        unit = claim(counters, step)
    wait(counters, step, num_units)


def _finished(panels, sums, column):
    """Results of sums of products, from a column on, before what follows (compiled only)."""
    raise NotImplementedError


@overload(_finished)
def _choose_finished(panels, sums, column):
    return _finish_floats if panels.instance_class is FloatPanels else _finish_integers


def _finish_floats(panels, sums, column):
    return sums + load(panels.bias, column)


def _finish_integers(panels, sums, column):
    return difference_of_integers(sums, load(panels.offsets, column)) * load(panels.scales, column)
