"""The compiled kernels against plain arithmetic: odd sizes, every tail, any batch."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from attention_reference import attention_with_probs
from torch import nn

from bertkit.compiled import compiled
from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels import vectors as v
from bertkit.transformer.kernels.activation import apply_activation
from bertkit.transformer.kernels.arrays import array, norm_arrays, position_arrays
from bertkit.transformer.kernels.attention import packed_self_attention
from bertkit.transformer.kernels.disentangled_attention import attend_disentangled
from bertkit.transformer.kernels.dispatch import offered_linears
from bertkit.transformer.kernels.key_value_cache import CompiledKeyValueCache
from bertkit.transformer.kernels.linear import has_onednn, multiply_unpacked
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE, WIDTH
from bertkit.transformer.kernels.rotation import rotated
from bertkit.transformer.kernels.rows import (
    Quantized,
    activate_in_8_bits,
    norm_rows,
    quantize_rows,
    read_rows,
)
from bertkit.transformer.kernels.tile_attention import attend_tiles
from bertkit.transformer.kernels.vector_functions import SHORT_GELU, exp2, gelu, normal
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.window import CAUSAL

LENGTHS = [5, 1, 33, 64, 17, 8, 16, 7, 2]
SHAPES = [(3, 20), (12, 32), (2, 64), (2, 7), (1, 48)]  # num_heads, head_dim


@compiled
def _functions(x, out):
    for i in range(0, len(x), 16):
        left = len(x) - i
        numbers = v.load_first(x, i, left)
        cdf, density = normal(numbers)
        v.store_first(out[0], i, exp2(numbers), left)
        v.store_first(out[1], i, cdf, left)
        v.store_first(out[2], i, density, left)
        v.store_first(out[3], i, gelu(numbers), left)


@pytest.mark.every_processor
def test_vector_functions() -> None:
    x = np.linspace(-9, 9, 4_001, dtype=np.float32)
    out = np.zeros((4, len(x)), np.float32)
    _functions(x, out)
    exact = torch.from_numpy(x).double()
    standard = torch.distributions.Normal(0, 1)
    negative = x <= 0
    assert np.abs(out[0] / np.exp2(x.astype(np.float64)) - 1)[negative].max() < 2e-7
    assert np.abs(out[1] - standard.cdf(exact).numpy()).max() < 2e-7
    assert np.abs(out[2] - standard.log_prob(exact).exp().numpy()).max() < 2e-7
    error = np.abs(out[3] - F.gelu(exact).numpy())
    assert error[np.abs(x) < 3].max() < 1e-5
    assert error.max() < 1.3e-4
    assert np.array_equal(out[3][np.abs(x) > 4], np.maximum(x, 0)[np.abs(x) > 4])


@compiled
def _across(x, out):
    tile = (
        v.load(x, 0), v.load(x, 16), v.load(x, 32), v.load(x, 48),
        v.load(x, 64), v.load(x, 80), v.load(x, 96), v.load(x, 112),
    )  # fmt: skip
    v.store(out, 0, v.totals_of_eight(tile))
    v.store(out, 16, v.largest_of_eight(tile))
    out[32], out[33], out[34] = v.total(tile[3]), v.largest(tile[3]), v.smallest(tile[3])
    v.store(out, 48, v.lane(tile[2], 5))


@compiled
def _transposed(x, out):
    v.transpose(x, 3, 17, out, 5, 20)


def test_across_lanes() -> None:
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    out = np.zeros(64, np.float32)
    _across(x, out)
    np.testing.assert_allclose(out[:16:2], x.sum(1), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(out[16:32:2], x.max(1))
    np.testing.assert_allclose(out[32:35], [x[3].sum(), x[3].max(), x[3].min()], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(out[48:], x[2, 5])


def test_transpose() -> None:
    x, out = np.arange(3 + 17 * 16, dtype=np.float32), np.zeros(5 + 20 * 16, np.float32)
    _transposed(x, out)
    rows = np.lib.stride_tricks.as_strided(x[3:], (16, 16), (17 * 4, 4))
    columns = np.lib.stride_tricks.as_strided(out[5:], (16, 16), (20 * 4, 4))
    np.testing.assert_array_equal(columns, rows.T)
    assert np.count_nonzero(out) == 256


@compiled
def _copied(x, out, count):
    v.store_first(out, 1, v.load_first(x, 2, count), count)


@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 40])
def test_kernels_stay_within_array_bounds(count: int) -> None:
    values = torch.linspace(-3, 7, 40).to(torch.bfloat16)
    for dtype in (torch.float32, torch.bfloat16):
        x, out = values.to(dtype), torch.full((40,), -1.0, dtype=dtype)
        _copied(array(x), array(out), count)
        moved = min(count, 16)
        assert torch.equal(out[1 : 1 + moved], x[2 : 2 + moved])
        assert (out[1 + moved :] == -1).all() and out[0] == -1


@pytest.mark.every_processor
def test_bfloat16_rounding_equals_torch() -> None:
    x = torch.randn(16 * 999, generator=torch.Generator().manual_seed(0))
    step = 2.0**-8  # bfloat16 has every second multiple between 1 and 2
    x[:8] = torch.tensor([torch.inf, -torch.inf, 3.4e38, -3.4e38, 1 + step, 1 + 3 * step, 0.0, -0.0])
    x[8] = torch.nan
    x[9:10] = torch.tensor([-1], dtype=torch.int32).view(torch.float32)  # a nan too: rounded up it would be -0
    out = torch.empty(len(x), dtype=torch.bfloat16)
    read_rows(array(x.view(999, 16)), array(out.view(999, 16)))
    assert out[8:10].isnan().all()
    out[8:10] = x[8:10] = 0  # of many bit patterns that are not a number, any
    assert torch.equal(out.view(torch.int16), x.to(torch.bfloat16).view(torch.int16))


def attend(together: torch.Tensor, lengths: list[int], num_heads: int) -> torch.Tensor:
    context = together.new_empty(len(together), together.shape[1] // 3)
    cu_seqlens = np.cumsum([0, *lengths], dtype=np.int32)
    rows, sizes = array(together), (cu_seqlens, cu_seqlens, num_heads, context.shape[1])
    attend_tiles(rows, rows, *sizes, array(context), None, None, None, None, None)
    return context


@pytest.mark.full(sample=1)
@pytest.mark.every_processor
@pytest.mark.parametrize(("num_heads", "head_dim"), SHAPES)
def test_attention(num_heads: int, head_dim: int) -> None:
    generator = torch.Generator().manual_seed(head_dim)
    together = torch.randn(sum(LENGTHS), 3 * num_heads * head_dim, generator=generator)
    query, key, value = together.double().unflatten(-1, (3, num_heads, head_dim)).unbind(1)
    expected = attention_with_probs(query, key, value, LENGTHS)[0].flatten(-2)
    results = attend(together, LENGTHS, num_heads)
    assert (results - expected).abs().max() < 2e-6
    assert (attend(together.bfloat16(), LENGTHS, num_heads) - expected).abs().max() < 0.03
    order = torch.randperm(len(LENGTHS), generator=generator).tolist()
    parts = together.split(LENGTHS)
    shuffled = attend(torch.cat([parts[i] for i in order]), [LENGTHS[i] for i in order], num_heads)
    for index, part in zip(order, shuffled.split([LENGTHS[i] for i in order]), strict=True):
        assert torch.equal(part, results.split(LENGTHS)[index])
        assert torch.equal(part, attend(parts[index], [LENGTHS[index]], num_heads))


def test_attention_to_very_large_scores_and_past_a_broken_neighbor() -> None:
    together = torch.randn(50, 3 * 64, generator=torch.Generator().manual_seed(0))
    together[:20] *= 300  # one key takes all
    together[20:30] = float("nan")
    results = attend(together, [20, 10, 20], 2)
    query, key, value = together.double().unflatten(-1, (3, 2, 32)).unbind(1)
    expected = attention_with_probs(query, key, value, [20, 10, 20])[0].flatten(-2)
    assert torch.allclose(results[:20].double(), expected[:20], rtol=1e-3, atol=1e-3)
    assert (results[30:] - expected[30:]).abs().max() < 2e-6
    assert results[20:30].isnan().all()


@pytest.mark.full
@pytest.mark.parametrize("factor", [1e6, 1e17])
def test_of_scores_of_any_size_the_largest_takes_all(factor: float) -> None:
    together = torch.randn(19, 3 * 64, generator=torch.Generator().manual_seed(0))
    together[:, :128] *= factor  # queries and keys
    cu_seqlens, exact = np.array([0, 19]), together.double()
    expected = packed_self_attention(exact, [19], 2)
    assert (attend(together, [19], 2) - expected).abs().max() < 2e-6
    cache = CompiledKeyValueCache(1, 1, 2, 32, torch.float32, torch.device("cpu"))
    cache.begin_append(cu_seqlens, np.array([0]))
    cache.append(0, together, 64)
    cache.begin_attend(cu_seqlens, np.array([0]), np.array([0]), is_causal=True)
    causal = packed_self_attention(exact, [19], 2, window=CAUSAL)
    assert (cache.attend(0, together) - causal).abs().max() < 2e-6
    context, positions = torch.empty(19, 64), PositionRows(*torch.zeros(2, 3, 64), torch.zeros(37).long(), 5.0)
    attend_disentangled(array(together), cu_seqlens, 2, array(context), None, *position_arrays(positions))
    assert (context - expected).abs().max() < 2e-6


@pytest.mark.full
def test_disentangled_attention_past_a_broken_neighbor() -> None:
    generator, cu_seqlens, context = torch.Generator().manual_seed(0), np.array([0, 19, 28]), torch.empty(28, 64)
    together, *rows = torch.randn(28, 192, generator=generator), *torch.randn(2, 37, 64, generator=generator)
    positions = PositionRows(*rows, torch.arange(37), 5.0)
    together[:19] = torch.nan
    attend_disentangled(array(together), cu_seqlens, 2, array(context), None, *position_arrays(positions))
    expected = packed_self_attention(together[19:], [9], 2, bias=positions)
    assert (context[19:] - expected).abs().max() < 1e-5


def empty_quantized(num_rows: int, width: int) -> Quantized:
    return Quantized(
        np.zeros((num_rows, width), np.uint8), np.zeros(num_rows, np.float32), np.zeros(num_rows, np.float32)
    )


def as_floats(quantized: Quantized) -> np.ndarray:
    values = quantized.values.astype(np.float64) - 128
    return values * quantized.scales[:, None] + quantized.middles[:, None]


@pytest.mark.every_processor
@pytest.mark.parametrize("width", [1, 15, 16, 20, 48, 64, 312, 384])
def test_rotated_rows_have_the_same_products_with_rotated_weights(width: int) -> None:
    generator = np.random.default_rng(width)
    rows, weights = (generator.standard_normal((7, width)).astype(np.float32) for _ in range(2))
    rows[:, 0] = 100
    turned = rotated(rows)
    np.testing.assert_allclose(turned @ rotated(weights, is_weight=True).T, rows @ weights.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rotated(turned, is_weight=True), rows, rtol=1e-5, atol=1e-4)
    block = min(width & -width, 128) if width % WIDTH == 0 else 1
    largest = (np.abs(turned) / np.sqrt(block)).max()
    assert (largest < 30) == (block > 1)


@pytest.mark.every_processor
@pytest.mark.parametrize("width", [1, 15, 16, 20, 384])
def test_quantized_rows(width: int) -> None:
    rows = np.random.default_rng(width).standard_normal((7, width)).astype(np.float32) * 3 + 1
    rows[2] = 5  # all the same
    rows[3] = 0
    rows[4, 0] = 1e4  # one far from the others
    quantized = empty_quantized(*rows.shape)
    quantize_rows(rows, 0, len(rows), quantized)
    rows = rotated(rows)
    step = (rows.max(1) - rows.min(1)) / LARGEST_BYTE
    assert (np.abs(as_floats(quantized) - rows).max(1) <= 0.51 * step + 1e-6 * np.abs(rows).max(1)).all()


@pytest.mark.every_processor
@pytest.mark.parametrize("width", [15, 16, 128])
@pytest.mark.parametrize("spread", [0, 1e-5, 1e-4, 3e-4, 1e-3, 1])
def test_quantized_rows_of_nearly_equal_numbers_stay_in_range(width: int, spread: float) -> None:
    rows = np.random.default_rng(width).standard_normal((50, width)) * spread
    rows[:, 0] = 1e4  # which rotation spreads over all columns
    quantized = empty_quantized(*rows.shape)
    quantize_rows(rows.astype(np.float32), 0, len(rows), quantized)
    assert quantized.values.max() <= LARGEST_BYTE
    rows = rotated(rows.astype(np.float32))
    assert (np.abs(as_floats(quantized) - rows) <= 0.51 * quantized.scales[:, None] + 0.05).all()


@pytest.mark.every_processor
@pytest.mark.parametrize("width", [1, 15, 16, 20, 384])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_rows(width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(width)
    x, residual = (torch.randn(7, width, generator=generator).to(dtype) * 2 + 1 for _ in range(2))
    norm = nn.LayerNorm(width, eps=1e-12)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    out, quantized = torch.empty_like(x), empty_quantized(7, width)
    norm_rows(array(x), array(residual), norm_arrays(norm), array(out), quantized)
    with torch.no_grad():
        expected = norm.double()(x.double() + residual.double())
    torch.testing.assert_close(out, expected.to(dtype), rtol=2e-6 if dtype == torch.float32 else 1e-2, atol=1e-5)
    rows = rotated(expected.numpy())
    step = (rows.max(1) - rows.min(1)) / LARGEST_BYTE
    assert (np.abs(as_floats(quantized) - rows).max(1) <= 0.51 * step + 1e-4).all()


LINEARS = {name: [choice.linear for choice in offered_linears(name)] for name in ("float32", "bfloat16", "int8")}


@pytest.mark.parametrize("linear", LINEARS["int8"])
@pytest.mark.parametrize(("num_rows", "inputs", "outputs"), [(1, 20, 37), (2, 384, 1536), (7, 33, 16), (65, 64, 1)])
def test_int8_products(linear, num_rows: int, inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(inputs)
    x = torch.randn(num_rows, inputs, generator=generator) + 0.5
    weight, bias = torch.randn(outputs, inputs, generator=generator), torch.randn(outputs, generator=generator)
    quantized = empty_quantized(num_rows, inputs)
    quantize_rows(x.numpy(), 0, num_rows, quantized)
    kernel, weight = linear(weight, bias), torch.from_numpy(rotated(weight.numpy(), is_weight=True))
    scales = torch.from_numpy(kernel.scales)[:, None]
    rounded = (weight / scales).round() * scales
    exact = torch.from_numpy(as_floats(quantized)) @ rounded.double().T + bias
    results = np.empty((num_rows, outputs), np.float32)
    product = kernel(quantized)
    read_rows(product, results)
    torch.testing.assert_close(torch.from_numpy(results).double(), exact, rtol=1e-5, atol=1e-4)
    far = empty_quantized(num_rows, outputs)
    activate_in_8_bits(product, np.intp(SHORT_GELU), far)
    activated = rotated(F.gelu(exact).numpy())
    step = (activated.max(1) - activated.min(1)) / LARGEST_BYTE
    error = np.abs(as_floats(far) - activated).max(1)
    assert (error <= 0.51 * step + 3e-4 * exact.abs().amax(1).numpy() + 1e-4).all()


@pytest.mark.parametrize("linear", LINEARS["float32"])
@pytest.mark.parametrize("num_rows", [1, 2, 7])
def test_linear_kernels(linear, num_rows: int) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    x, residual = torch.randn(num_rows, 20, generator=generator), torch.randn(num_rows, 37, generator=generator)
    weight, bias = torch.randn(37, 20, generator=generator), torch.randn(37, generator=generator)
    product = x.double() @ weight.double().T + bias.double()
    kernel = linear(weight, bias)
    torch.testing.assert_close(kernel(x), product.float())
    torch.testing.assert_close(kernel(x, residual=residual), (product + residual).float())
    for name, activation in ACTIVATIONS.items():
        torch.testing.assert_close(kernel(x, activation=name), activation(product).float(), rtol=1e-5, atol=1e-5)


ONE_ROUNDING = {"rtol": 2.0**-8, "atol": 1e-5}  # to bfloat16, and at its ties the next number


@pytest.mark.every_processor
@pytest.mark.parametrize("linear", LINEARS["bfloat16"])
@pytest.mark.parametrize("num_rows", [1, 2, 7, 70])
def test_bfloat16_products_are_rounded_once(linear, num_rows: int) -> None:
    """Or, where the residual or activation is another kernel, once more after it."""
    generator = torch.Generator().manual_seed(num_rows)
    x, residual, weight, bias = (
        torch.randn(shape, generator=generator).bfloat16()
        for shape in ((num_rows, 40), (num_rows, 37), (37, 40), (37,))
    )
    product = x.double() @ weight.double().T + bias.double()
    kernel = linear(weight, bias)
    then = {"rtol": 2.0**-7, "atol": 2.0**-7}
    torch.testing.assert_close(kernel(x), product.bfloat16(), **ONE_ROUNDING)
    torch.testing.assert_close(kernel(x, residual=residual), (product + residual).bfloat16(), **then)
    torch.testing.assert_close(kernel(x, activation="gelu"), F.gelu(product).bfloat16(), **then)
    for number in range(num_rows):
        assert torch.equal(kernel(x[number : number + 1].clone()), kernel(x)[number : number + 1])


@pytest.mark.every_processor
@pytest.mark.parametrize("instructions", [True, False])
def test_products_of_training_in_bfloat16(instructions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = importlib.import_module("bertkit.transformer.kernels.linear")  # the package has a function of that name
    monkeypatch.setattr(linear, "has_fast_bfloat16", lambda: instructions)
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=generator).bfloat16() for shape in ((33, 20), (70, 20), (70,)))
    grad = torch.randn(33, 70, generator=generator).bfloat16()
    for a, b, added in ((x, weight, bias), (grad, weight.T, None), (grad.T, x.T, None)):
        expected = a.double() @ b.double().T + (0 if added is None else added.double())
        torch.testing.assert_close(multiply_unpacked(a, b, added), expected.bfloat16(), **ONE_ROUNDING)


@pytest.mark.every_processor
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "relu"])
def test_activations_regardless_of_position(name: str, dtype: torch.dtype) -> None:
    values = torch.cat([torch.linspace(-30, 30, 601), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 1e4, -1e4])])
    values = values.to(dtype)
    exact = ACTIVATIONS[name](values.double())
    results = [apply_activation(values.roll(shift)[None, :], name)[0].roll(-shift) for shift in (0, 1, 7)]
    assert all(torch.equal(result, results[0]) for result in results)
    tolerance = 1e-5 if dtype == torch.float32 else 2**-7
    least = 1.3e-4 if name == "gelu" and dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(results[0].double(), exact, rtol=tolerance, atol=least)


ROW_COUNTS = """
from pathlib import Path
import torch
from bertkit.transformer.kernels.linear import multiply_unpacked
def num_bytes(): return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096
a, b = torch.ones(999, 20), torch.ones(64, 20)
multiply_unpacked(a, b)
before = num_bytes()
for num_rows in range(1, 700): multiply_unpacked(a[:num_rows], b)
print(num_bytes() - before)
"""


@pytest.mark.skipif(not has_onednn("mkldnn::_linear_pointwise"), reason="this build of torch lacks oneDNN's product")
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
def test_products_of_any_number_of_rows_take_bounded_memory() -> None:
    """With oneDNN's and torch's own limits they take 380 MB."""
    done = subprocess.run([sys.executable, "-c", ROW_COUNTS], capture_output=True, text=True)
    assert int(done.stdout) < 100e6, done.stderr
