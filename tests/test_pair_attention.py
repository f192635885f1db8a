"""Attention in products of two bfloat16 numbers, against torch's operations in float64: odd sizes, any batch."""

import numpy as np
import pytest
import torch
from attention_reference import attention_with_probs
from torch import Tensor

from bertkit.transformer.kernels.arrays import array, bias_array, rotary_and_window
from bertkit.transformer.kernels.attention import packed_self_attention
from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
from bertkit.transformer.kernels.rows import empty_quantized, quantize_rows
from bertkit.transformer.kernels.tile_attention import attend_pairs
from bertkit.transformer.rotary import Rotary, rotary_of
from bertkit.transformer.window import Window

pytestmark = [
    pytest.mark.every_processor,
    pytest.mark.skipif(not has_wide_registers("avx512bf16"), reason="pairs of bfloat16 need AVX-512 BF16"),
]

LENGTHS = [5, 1, 33, 64, 17, 8, 130, 7, 2]
SHAPES = [(3, 20), (12, 32), (2, 64), (2, 7), (1, 48), (1, 1)]  # num_heads, head_dim


def attend(
    together: Tensor,
    lengths: list[int],
    num_heads: int,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The context in float32, whose rounding is far below that of the products."""
    context = torch.empty(len(together), together.shape[1] // 3)
    cu_seqlens, turns = np.cumsum([0, *lengths], dtype=np.int32), rotary_and_window(rotary, window, max(lengths))
    added = bias_array(bias, context.shape[1] // num_heads)
    attend_pairs(array(together), cu_seqlens, num_heads, array(context), None, *turns, added)
    return context


def rows_of(num_heads: int, head_dim: int, lengths: list[int]) -> Tensor:
    generator = torch.Generator().manual_seed(head_dim)
    return torch.randn(sum(lengths), 3 * num_heads * head_dim, generator=generator).bfloat16()


def assert_rounded(context: Tensor, expected: Tensor) -> None:
    """Only the probabilities are rounded, each by at most 2**-9 of itself; values are up to 4."""
    error = (context - expected).abs()
    assert error.max() < 4 * 2**-9
    assert error.square().mean().sqrt() < 0.003 * expected.square().mean().sqrt()


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("window", [None, 0, 1, 20, 300, Window(64, 0)])
@pytest.mark.parametrize(("num_heads", "head_dim"), SHAPES)
def test_attention(num_heads: int, head_dim: int, window: int | Window | None) -> None:
    together = rows_of(num_heads, head_dim, LENGTHS)
    expected = packed_self_attention(together.double(), LENGTHS, num_heads, window=window)
    assert_rounded(attend(together, LENGTHS, num_heads, window=window), expected)


@pytest.mark.parametrize(("num_heads", "head_dim"), [(2, 64), (1, 34), (2, 6)])
def test_turned_attention(num_heads: int, head_dim: int) -> None:
    together = rows_of(num_heads, head_dim, LENGTHS)
    rotary = rotary_of(torch.cat([torch.arange(length) for length in LENGTHS]), 500.0, head_dim)
    expected = packed_self_attention(together.double(), LENGTHS, num_heads, rotary=rotary)
    error = (attend(together, LENGTHS, num_heads, rotary) - expected).abs()  # turned queries and keys are rounded too
    assert error.max() < 0.03


@pytest.mark.full
@pytest.mark.parametrize(("num_heads", "head_dim"), [(3, 20), (12, 32)])
def test_attention_with_a_bias(num_heads: int, head_dim: int) -> None:
    together, longest = rows_of(num_heads, head_dim, LENGTHS), max(LENGTHS)
    bias = 3 * torch.randn(num_heads, 2 * longest - 1, generator=torch.Generator().manual_seed(1))
    expected = packed_self_attention(together.double(), LENGTHS, num_heads, bias=bias.double())
    assert_rounded(attend(together, LENGTHS, num_heads, bias=bias), expected)


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize(("num_heads", "head_dim"), SHAPES)
def test_the_same_bits_alone_and_in_any_order(num_heads: int, head_dim: int, window: int | None) -> None:
    parts = rows_of(num_heads, head_dim, LENGTHS).split(LENGTHS)
    alone = [attend(part, [len(part)], num_heads, window=window) for part in parts]
    order = torch.randperm(len(parts), generator=torch.Generator().manual_seed(2)).tolist()
    shuffled = attend(torch.cat([parts[i] for i in order]), [LENGTHS[i] for i in order], num_heads, window=window)
    assert torch.equal(shuffled, torch.cat([alone[i] for i in order]))


def test_very_large_scores_and_a_broken_neighbor() -> None:
    together = rows_of(2, 32, [20, 10, 21])
    together[:20] *= 300  # one key takes all
    together[20:30] = float("nan")
    results = attend(together, [20, 10, 21], 2)
    query, key, value = together.double().unflatten(-1, (3, 2, 32)).unbind(1)
    expected = attention_with_probs(query, key, value, [20, 10, 21])[0].flatten(-2)
    assert torch.allclose(results[:20].double(), expected[:20], rtol=1e-2, atol=1e-2)
    assert_rounded(results[30:], expected[30:])
    assert results[20:30].isnan().all()


@pytest.mark.full
def test_a_quantized_context_is_that_of_the_context() -> None:
    together, cu_seqlens = rows_of(12, 32, LENGTHS), np.cumsum([0, *LENGTHS], dtype=np.int32)
    context = np.empty((len(together), 384), np.float32)
    quantized, expected = empty_quantized(*context.shape), empty_quantized(*context.shape)
    attend_pairs(array(together), cu_seqlens, 12, context, quantized, None, None, None)
    quantize_rows(context, 0, len(context), expected)
    assert all(np.array_equal(part, other) for part, other in zip(quantized, expected, strict=True))
