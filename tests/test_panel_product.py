"""Products of 8-bit numbers with weights in panels: exact at any size, on any number of threads."""

import numpy as np
import pytest
import torch

from bertkit.transformer.kernels.linear import CompiledInt8Linear
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE, has_byte_products, has_wide_registers
from bertkit.transformer.kernels.panel_product import weight_scales
from bertkit.transformer.kernels.rotation import rotated

pytestmark = [
    pytest.mark.every_processor,
    pytest.mark.skipif(not has_wide_registers("avx2"), reason="products of panels need AVX2"),
]


def exact_product(linear: CompiledInt8Linear, weight: torch.Tensor, values: np.ndarray) -> np.ndarray:
    """The integer sums, rounded to float32 and then scaled."""
    rounded = np.rint(rotated(weight.numpy(), is_weight=True) / linear.scales[:, None]).astype(np.int64)
    sums = (values.astype(np.int64) - 128) @ rounded.T
    return sums.astype(np.float32) * linear.scales


def random_case(num_rows: int, inputs: int, outputs: int) -> tuple[CompiledInt8Linear, torch.Tensor, np.ndarray]:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(inputs))
    values = np.random.default_rng(outputs).integers(0, LARGEST_BYTE + 1, (num_rows, inputs), np.uint8)
    values[0], values[-1] = LARGEST_BYTE, 0
    return CompiledInt8Linear(weight, None), weight, values


@pytest.mark.parametrize(
    ("num_rows", "inputs", "outputs"),
    [(1, 1, 1), (1, 20, 37), (2, 384, 1536), (7, 33, 16), (65, 64, 1), (47, 99, 130), (49, 3, 257), (101, 2050, 70)],
)
def test_product_is_the_exact_sum_of_integers(num_rows: int, inputs: int, outputs: int) -> None:
    linear, weight, values = random_case(num_rows, inputs, outputs)
    product = linear.multiply(values)
    np.testing.assert_array_equal(product, exact_product(linear, weight, values))


@pytest.mark.parametrize("signs", [(1, 1), (-1, -1), (1, -1)])
@pytest.mark.parametrize("inputs", [4, 20, 66])
def test_largest_products_do_not_overflow(signs: tuple[int, int], inputs: int) -> None:
    weight = torch.tensor(signs).float().repeat(70, inputs // 2)
    linear = CompiledInt8Linear(weight, None)
    for value in (0, 1, LARGEST_BYTE - 1, LARGEST_BYTE):
        values = np.full((13, inputs), value, np.uint8)
        product = linear.multiply(values)
        np.testing.assert_array_equal(product, exact_product(linear, weight, values))


@pytest.mark.parametrize("inputs", [1, 2, 65, 384])
def test_sums_in_16_bits_of_rounded_weights_do_not_overflow(inputs: int) -> None:
    weight = torch.randn(301, inputs, generator=torch.Generator().manual_seed(inputs))
    weight[0], weight[1, -1] = 0, 1e3
    scales, largest = torch.from_numpy(weight_scales(weight.numpy())), weight.abs().amax(dim=1) / 127
    rounded = (weight / scales[:, None]).round().int()
    assert rounded.abs().max() == 127
    if has_byte_products():
        assert torch.equal(scales[1:], largest[1:])
        return
    words = torch.nn.functional.pad(rounded, (0, -inputs % 12)).reshape(len(weight), -1, 3, 2, 2)
    positive, negative = (LARGEST_BYTE * part.sum(dim=(2, 4)) for part in (words.clamp(min=0), words.clamp(max=0)))
    assert positive.max() < 2**15 and negative.min() >= -(2**15) and (scales <= 4 * largest + 1e-30).all()
    assert positive.max() > 0.9 * 2**15 or inputs < 12  # no coarser than needed


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_rows_have_the_same_bits_in_any_number(num_threads: int) -> None:
    linear, _, values = random_case(101, 99, 300)
    together, before = linear.multiply(values), torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for first, count in ((0, 101), (3, 1), (17, 5), (40, 49), (5, 96)):
            product = linear.multiply(values[first : first + count])
            np.testing.assert_array_equal(product, together[first : first + count])
    finally:
        torch.set_num_threads(before)
