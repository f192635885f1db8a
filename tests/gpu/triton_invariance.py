"""Kernels with the same bits of a row in any batch, by Triton's interpreter on the CPU.

Run by test_triton.py.
"""

from dataclasses import replace
from itertools import accumulate

import interpreted_bfloat16  # noqa: F401
import numpy as np
import pytest
import torch
from torch import Tensor

from bertkit.batch import packed
from bertkit.transformer.kernels import triton_products
from bertkit.transformer.kernels.attention import packed_attention, repeated_heads
from bertkit.transformer.kernels.key_value_cache import PlainKeyValueCache
from bertkit.transformer.kernels.triton_attention import invariant_attention
from bertkit.transformer.kernels.triton_cache import InvariantKeyValueCache
from bertkit.transformer.kernels.triton_products import Tiles, multiply, sums_of_rows
from bertkit.transformer.window import CAUSAL, Window

DTYPES = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
"""Largest differences from float64, relative to the largest number."""
LENGTHS = [5, 1, 33, 64, 17, 130, 2]


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(given: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert given.shape == expected.shape and given.isfinite().all()
    assert float((given.double() - expected).abs().max() / expected.abs().max()) <= DTYPES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_outputs", "num_inputs", "has_bias"), [(70, 100, True), (1_100, 36, False), (3, 1, True)])
def test_rows_of_products(num_outputs: int, num_inputs: int, has_bias: bool, dtype: torch.dtype) -> None:
    x, weight = drawn(300, num_inputs, dtype=dtype), drawn(num_outputs, num_inputs, dtype=dtype, seed=1)
    bias = drawn(num_outputs, dtype=dtype, seed=2) if has_bias else None
    expected = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    together = multiply(x, weight, bias)
    assert_near(together, expected, dtype)
    for start, end in ((0, 1), (7, 8), (299, 300), (2, 65), (100, 229), (1, 300), (5, 5)):
        assert torch.equal(multiply(x[start:end], weight, bias), together[start:end])


def test_other_tiles_would_give_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above fails for tiles that depend on the number of rows."""
    x, weight = drawn(3, 100), drawn(70, 100, seed=1)
    expected = multiply(x, weight, None)
    assert torch.equal(multiply(x, weight, None), expected)
    monkeypatch.setattr(triton_products, "tiles_of", lambda *given: Tiles(64, 64, 16, 4, 3))
    assert not torch.equal(multiply(x, weight, None), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 70, 5_000])
def test_sums_of_rows(width: int, dtype: torch.dtype) -> None:
    x = drawn(19, width, dtype=dtype)
    together = sums_of_rows(x)
    assert together.dtype == torch.float32
    assert_near(together, x.double().sum(-1), torch.float32)
    for start, end in ((0, 1), (18, 19), (3, 12), (4, 4)):
        assert torch.equal(sums_of_rows(x[start:end]), together[start:end])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_heads", "num_key_heads", "head_dim", "window", "has_bias"),
    [
        (2, 2, 16, None, False), (3, 3, 20, None, True), (4, 2, 72, CAUSAL, False), (6, 2, 8, Window(7, 20), False),
        (2, 1, 32, Window(0, 3), False), (1, 1, 64, Window(100, 0), True),
    ],
)  # fmt: skip
def test_sequences_of_attention(
    num_heads: int, num_key_heads: int, head_dim: int, window: Window | None, has_bias: bool, dtype: torch.dtype
) -> None:
    width, sizes, longest = (num_heads + 2 * num_key_heads) * head_dim, (num_heads, head_dim), max(LENGTHS)
    given = drawn(sum(LENGTHS), width, dtype=dtype)
    bias = drawn(num_heads, 2 * longest - 1, dtype=dtype, seed=1) if has_bias else None

    def attend(rows: Tensor, lengths: list[int], of_bias: Tensor | None) -> Tensor:
        cu_seqlens = torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32)
        return invariant_attention(rows, cu_seqlens, max(lengths), *sizes, window, of_bias)

    together = attend(given, LENGTHS, bias)
    # as torch's own: either a window or a bias
    query, key, value = repeated_heads(given.double(), *sizes).unflatten(1, (3, num_heads, head_dim)).unbind(1)
    if has_bias and window is not None:
        distances = torch.arange(1 - longest, longest)
        assert bias is not None
        hidden = (distances < -window.before) | (distances > window.after)
        expected = packed_attention(query, key, value, LENGTHS, bias=bias.double().masked_fill(hidden, float("-inf")))
    else:
        expected = packed_attention(
            query, key, value, LENGTHS, window=window, bias=None if bias is None else bias.double()
        )
    assert_near(together, expected.flatten(1), dtype)
    start = 0
    for number, length in enumerate(LENGTHS):
        rows = slice(start, start + length)
        own = None if bias is None else bias[:, longest - length : longest + length - 1]
        assert torch.equal(attend(given[rows], [length], own), together[rows])
        start += length
        if number == 3:
            assert torch.equal(attend(given[:start], LENGTHS[:4], bias), together[:start])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_cache(dtype: torch.dtype) -> None:
    num_heads, head_dim, num_rows = 2, 20, 3
    width, steps = num_heads * head_dim, ([3, 33, 1], [1, 1, 1], [30, 1, 2])

    def contexts(kind: type, rows: list[int], dtype: torch.dtype = dtype, *, one_by_one: bool = False) -> list[Tensor]:
        """Of the new tokens of these rows, step by step."""
        cache = kind(1, len(rows), num_heads, head_dim, dtype, torch.device("cpu"))
        lengths, found = np.zeros(len(rows), np.int64), []
        for step, new in enumerate(steps):
            every = drawn(sum(new), 3 * width, seed=step).to(dtype).split(new)
            parts = [[every[row] for row in rows]]
            if one_by_one:
                parts = [[token[None]] for token in parts[0][0]]
            for part in parts:
                num_new = np.array([len(one) for one in part])
                cu_new = np.concatenate([[0], np.cumsum(num_new)])
                cache.begin_append(cu_new, lengths)
                cache.begin_attend(cu_new, lengths, np.arange(len(rows)), True)
                cache.append(0, torch.cat(part), width)
                found.append(cache.attend(0, torch.cat(part)))
                lengths = lengths + num_new
        return found

    together = contexts(InvariantKeyValueCache, [0, 1, 2])
    expected = contexts(PlainKeyValueCache, [0, 1, 2], torch.float64)
    assert_near(torch.cat(together), torch.cat(expected), dtype)
    for row in range(num_rows):
        own = torch.cat([step.split(new)[row] for step, new in zip(together, steps, strict=True)])
        assert torch.equal(torch.cat(contexts(InvariantKeyValueCache, [row])), own)
        assert torch.equal(torch.cat(contexts(InvariantKeyValueCache, [row], one_by_one=True)), own)


def test_filler_and_empty_sequences_change_nothing() -> None:
    batch = packed(np.zeros(50), np.zeros(50), np.array([20, 30])).as_tensors()
    given, sizes = drawn(64, 3 * 32), (2, 16)
    expected = invariant_attention(given[:50], batch.cu_seqlens, 30, *sizes)
    with_empty = replace(batch, cu_seqlens=torch.tensor([0, 0, 0, 20, 50], dtype=torch.int32))
    assert torch.equal(invariant_attention(given, with_empty.cu_seqlens, 512, *sizes)[:50], expected)
