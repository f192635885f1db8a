"""Products and sums of rows on a GPU in Triton, in which a row has the same bits in any number of rows.

cuBLAS chooses its tiles, and among how many programs it divides a sum, by the number of rows too; torch's sums over the
columns of a row likewise. Here tiles are a function of the weight, and one program adds up an element from the first
column to the last.

Shape letters: M rows, K inputs, N outputs. Needs triton, which comes with torch for CUDA.
"""

from typing import NamedTuple

import torch
import triton  # pyrefly: ignore  # comes with torch for CUDA
import triton.language as tl  # pyrefly: ignore
from torch import Tensor

_MOST_COLUMNS_IN_FLIGHT = 4_096


class Tiles(NamedTuple):
    """How a product is divided."""

    rows: int
    columns: int
    inputs: int  # added up at a time
    num_warps: int
    num_stages: int


def tiles_of(num_outputs: int, dtype: torch.dtype) -> Tiles:
    """The tiles of a product with a weight, for any number of rows: other ones could add in another order."""
    if dtype == torch.float32:
        return Tiles(64, 64, 32, 4, 3)
    return Tiles(128, 64, 64, 4, 4) if num_outputs < 1_024 else Tiles(128, 128, 64, 8, 3)


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    x, weight, bias, out, num_rows, num_outputs, num_inputs,
    has_bias: tl.constexpr, rows_of_tile: tl.constexpr, columns_of_tile: tl.constexpr, inputs_of_tile: tl.constexpr,
):  # fmt: skip
    """``x W^T + b``. A program computes every n-th tile; neighbors in this order read the same rows."""
    tiles_of_row = tl.cdiv(num_outputs, columns_of_tile)
    num_tiles = tl.cdiv(num_rows, rows_of_tile) * tiles_of_row
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        rows = tile // tiles_of_row * rows_of_tile + tl.arange(0, rows_of_tile)
        columns = tile % tiles_of_row * columns_of_tile + tl.arange(0, columns_of_tile)
        are_rows, are_columns = (rows < num_rows)[:, None], (columns < num_outputs)[None, :]
        of_rows = x + rows.to(tl.int64)[:, None] * num_inputs
        of_columns = weight + columns.to(tl.int64)[None, :] * num_inputs
        summed = tl.zeros((rows_of_tile, columns_of_tile), tl.float32)
        for start in range(0, num_inputs, inputs_of_tile):
            inputs = start + tl.arange(0, inputs_of_tile)
            left = tl.load(of_rows + inputs[None, :], mask=are_rows & (inputs < num_inputs)[None, :], other=0.0)
            right = tl.load(of_columns + inputs[:, None], mask=are_columns & (inputs < num_inputs)[:, None], other=0.0)
            summed = tl.dot(left, right, summed, input_precision="ieee")  # float32 without rounding to TF32
        if has_bias:
            summed += tl.load(bias + columns, mask=columns < num_outputs, other=0.0).to(tl.float32)[None, :]
        places = rows.to(tl.int64)[:, None] * num_outputs + columns[None, :]
        tl.store(out + places, summed.to(out.dtype.element_ty), mask=are_rows & are_columns)


@triton.jit
def _add_up(x, sums, width: tl.constexpr, columns_of_tile: tl.constexpr):
    """The sum of each row, one row for each program."""
    row = tl.program_id(0)
    summed = tl.zeros((columns_of_tile,), tl.float32)
    for start in range(0, width, columns_of_tile):
        columns = start + tl.arange(0, columns_of_tile)
        summed += tl.load(x + row.to(tl.int64) * width + columns, mask=columns < width, other=0.0).to(tl.float32)
    tl.store(sums + row, tl.sum(summed, 0))


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x W^T + b`` without gradients, with sums in float32: (M, K) to (M, N).

    Args:
        x, weight, bias: of one dtype: bfloat16, float16 or float32.
    """
    num_rows, (num_outputs, num_inputs) = len(x), weight.shape
    x, weight = x.contiguous(), weight.contiguous()
    out = torch.empty(num_rows, num_outputs, dtype=x.dtype, device=x.device)
    tiles = tiles_of(num_outputs, x.dtype)
    num_tiles = triton.cdiv(num_rows, tiles.rows) * triton.cdiv(num_outputs, tiles.columns)
    if num_tiles:
        _multiply[(min(num_tiles, _num_programs(x.device)),)](
            x, weight, x if bias is None else bias, out, num_rows, num_outputs, num_inputs,
            bias is not None, *tiles[:3], num_warps=tiles.num_warps, num_stages=tiles.num_stages,
        )  # fmt: skip
    return out


def sums_of_rows(x: Tensor) -> Tensor:
    """The sum of each row without gradients, in float32: (M, N) to (M,)."""
    num_rows, width = x.shape
    sums = torch.empty(num_rows, dtype=torch.float32, device=x.device)
    if num_rows:
        size = min(triton.next_power_of_2(width), _MOST_COLUMNS_IN_FLIGHT)
        _add_up[(num_rows,)](x.contiguous(), sums, width, size)
    return sums


def _num_programs(device: torch.device) -> int:
    """As many as a device runs at the same time; each element is computed by one of them, so that bits are the same."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3
