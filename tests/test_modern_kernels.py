"""ModernBERT's kernels against torch's own operations: turned and windowed attention, gate, norm."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from random_models import randomize
from torch import Tensor, nn

from bertkit import Batch, ModernBertConfig
from bertkit.architectures import Network
from bertkit.batch import packed
from bertkit.tasks import Loss
from bertkit.training import compute_gradients
from bertkit.transformer.kernels import steps, training_kernels
from bertkit.transformer.kernels.arrays import array, rotary_and_window
from bertkit.transformer.kernels.attention import packed_self_attention, repeated_heads
from bertkit.transformer.kernels.inference_steps import (
    CompiledAddThenNorm,
    PlainAddThenNorm,
    compiled_gate,
    plain_attention,
    plain_gate,
    tile_attention,
)
from bertkit.transformer.kernels.linear import PlainInt8Linear
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE
from bertkit.transformer.kernels.rotation import rotated
from bertkit.transformer.kernels.rows import Quantized, UnscaledProduct, read_rows
from bertkit.transformer.kernels.tile_attention import attend_tiles
from bertkit.transformer.kernels.training_rows import Dropout, dropout_rows
from bertkit.transformer.prepared.int8_steps import Int8AddThenNorm, activate_gate, hidden_states_of
from bertkit.transformer.rotary import Rotary, rotary_of, rotate
from bertkit.transformer.window import CAUSAL

LENGTHS = [5, 1, 33, 64, 17, 8, 130, 7, 2]
SHAPES = [(3, 20), (12, 32), (2, 64), (2, 6), (1, 48), (1, 34)]  # num_heads, head_dim
WINDOWS = [None, 0, 1, 7, 20, 300]


def positions(lengths: list[int], first: int = 0) -> Tensor:
    return torch.cat([torch.arange(first, first + length) for length in lengths])


def attend(together: Tensor, lengths: list[int], num_heads: int, rotary: Rotary, window: int | None) -> Tensor:
    context = together.new_empty(len(together), together.shape[1] // 3)
    cu_seqlens, turns = np.cumsum([0, *lengths], dtype=np.int32), rotary_and_window(rotary, window, max(lengths))
    rows, sizes = array(together), (cu_seqlens, cu_seqlens, num_heads, context.shape[1])
    attend_tiles(rows, rows, *sizes, array(context), None, None, *turns, None)
    return context


def test_rotation_of_four_columns() -> None:
    rotary = rotary_of(torch.tensor([0, 3]), 100.0, 4)
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]] * 2)
    angles = [3.0, 0.3]  # columns 0 and 2 turn by 1 a position, 1 and 3 by 100 ** (-1 / 2)
    turned = [complex(1, 3) * np.exp(1j * angles[0]), complex(2, 4) * np.exp(1j * angles[1])]
    expected = [[1, 2, 3, 4], [turned[0].real, turned[1].real, turned[0].imag, turned[1].imag]]
    torch.testing.assert_close(rotate(x, rotary)[:, 0], torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_heads", "num_key_value_heads", "head_dim"), [(6, 2, 20), (3, 1, 34), (4, 2, 64)])
def test_key_value_heads_of_several_query_heads_have_the_bits_of_repeated_ones(
    num_heads: int, num_key_value_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    width = (num_heads + 2 * num_key_value_heads) * head_dim
    together = torch.randn(sum(LENGTHS), width, generator=torch.Generator().manual_seed(1)).to(dtype)
    query, *key_value = together.split([num_heads * head_dim, *[num_key_value_heads * head_dim] * 2], dim=1)
    heads = [head for part in key_value for head in part.split(head_dim, dim=1)]
    repeated = torch.cat([query, *(head for head in heads for _ in range(num_heads // num_key_value_heads))], dim=1)
    assert torch.equal(repeated_heads(together, num_heads, head_dim), repeated)
    batch = packed(np.zeros(sum(LENGTHS)), np.zeros(sum(LENGTHS)), np.array(LENGTHS)).as_tensors()
    arguments = num_heads, head_dim, rotary_of(batch.position_ids, 50.0, head_dim), CAUSAL
    for attention in (tile_attention, plain_attention):
        assert torch.equal(attention(together, batch, *arguments), attention(repeated, batch, *arguments))


def test_turned_products_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()

    def product(i: int, j: int) -> Tensor:
        turned = (rotate(x, rotary_of(torch.tensor([at]), 50.0, 20)) for x, at in ((query, i), (key, j)))
        return torch.mul(*turned).sum()

    near = product(0, 4)
    torch.testing.assert_close([product(3, 7), product(31, 35)], [near, near], rtol=1e-5, atol=1e-5)
    assert abs(product(4, 0) - near) > 0.01


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("num_heads", "head_dim"), SHAPES)
def test_attention(num_heads: int, head_dim: int, window: int | None) -> None:
    generator = torch.Generator().manual_seed(head_dim)
    together = torch.randn(sum(LENGTHS), 3 * num_heads * head_dim, generator=generator)
    rotary = rotary_of(positions(LENGTHS), 500.0, head_dim)
    expected = packed_self_attention(together.double(), LENGTHS, num_heads, rotary=rotary, window=window)
    results = attend(together, LENGTHS, num_heads, rotary, window)
    assert (results - expected).abs().max() < 3e-6
    assert (attend(together.bfloat16(), LENGTHS, num_heads, rotary, window) - expected).abs().max() < 0.03
    for part, batched, length in zip(together.split(LENGTHS), results.split(LENGTHS), LENGTHS, strict=True):
        alone = attend(part, [length], num_heads, rotary_of(positions([length]), 500.0, head_dim), window)
        assert torch.equal(alone, batched)


@pytest.mark.parametrize("window", [0, 2, 9])
def test_token_attends_only_to_its_window(window: int) -> None:
    together = torch.randn(50, 3 * 60, generator=torch.Generator().manual_seed(0))
    rotary = rotary_of(positions([50]), 500.0, 20)
    before = attend(together, [50], 3, rotary, window)
    together[23] += 100
    changed = (attend(together, [50], 3, rotary, window) != before).any(1).nonzero().flatten()
    assert changed.tolist() == list(range(23 - window, 23 + window + 1))


def mask_of(dropout: Dropout, shape: tuple[int, int]) -> Tensor:
    out = torch.empty(shape)
    dropout_rows(array(torch.ones(shape)), dropout, array(out))
    return out


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("dropout_prob", [0.0, 0.3])
@pytest.mark.parametrize("window", [None, 0, 5, 40])
@pytest.mark.parametrize(("num_heads", "head_dim"), [(3, 20), (1, 34), (2, 64)])
def test_gradients_of_attention(num_heads: int, head_dim: int, window: int | None, dropout_prob: float) -> None:
    total, longest, width = sum(LENGTHS), max(LENGTHS), num_heads * head_dim
    generator = torch.Generator().manual_seed(0)
    together = torch.randn(total, 3 * width, generator=generator, requires_grad=True)
    grad = torch.randn(total, width, generator=generator)
    rotary = rotary_of(positions(LENGTHS, first=3), 500.0, head_dim)
    with training_kernels(torch.float32, seed=3):
        out = steps.self_attention(together, batch(lengths=LENGTHS), num_heads, dropout_prob, rotary, window)
    (results,) = torch.autograd.grad(out, together, grad)
    kept = torch.ones(total, num_heads, longest)
    if dropout_prob:
        with training_kernels(torch.float32, seed=3):
            kept = mask_of(steps._active().dropout(dropout_prob), (1, kept.numel())).view(kept.shape)
    parts = []
    starts = np.cumsum([0, *LENGTHS])
    for start, length in zip(starts, LENGTHS, strict=False):
        rows = slice(start, start + length)
        query, key, value = together[rows].view(length, 3, num_heads, head_dim).unbind(1)
        turn = Rotary(rotary.cos[rows], rotary.sin[rows])
        query, key, value = (x.transpose(0, 1) for x in (rotate(query, turn), rotate(key, turn), value))
        indices = torch.arange(length)
        far = (indices[:, None] - indices).abs() > (length if window is None else window)
        probs = (query @ key.transpose(1, 2) / head_dim**0.5).masked_fill(far, -torch.inf).softmax(-1)  # (H, L, L)
        parts.append(((probs * kept[rows, :, :length].transpose(0, 1)) @ value).transpose(0, 1).flatten(1))
    plain = torch.cat(parts)
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(results, torch.autograd.grad(plain, together, grad)[0], rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("width", [1, 15, 16, 37, 96])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gate(width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(7, 2 * width, generator=generator).to(dtype).requires_grad_()
    grad = torch.randn(7, width, generator=generator).to(dtype)
    with training_kernels(dtype, seed=0):
        out = steps.gate(x, "gelu")
    exact = x.detach().double().requires_grad_()
    left, right = exact.chunk(2, dim=1)
    plain = nn.functional.gelu(left) * right
    close = {"rtol": 1e-6, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(out.double(), plain, **close)
    results, expected = torch.autograd.grad(out, x, grad)[0], torch.autograd.grad(plain, exact, grad.double())[0]
    torch.testing.assert_close(results.double(), expected, **close)
    assert torch.equal(compiled_gate(x.detach(), "gelu"), out)
    by_silu = nn.functional.silu(left) * right
    torch.testing.assert_close(compiled_gate(x.detach(), "silu").double(), by_silu, **close)


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("width", [1, 15, 16, 37, 96])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout_prob", [0.0, 0.3])
def test_add_then_norm(width: int, dtype: torch.dtype, dropout_prob: float) -> None:
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(7, width, generator=generator).to(dtype).requires_grad_()
    residual = torch.randn(7, width, generator=generator, requires_grad=True)
    norm = nn.LayerNorm(width, eps=1e-3, bias=False)
    nn.init.normal_(norm.weight)
    leaves, module = [x, residual, norm.weight], nn.Dropout(dropout_prob).train()
    grads = [torch.randn(7, width, generator=generator), torch.randn(7, width, generator=generator).to(dtype)]
    with training_kernels(dtype, seed=3):
        outs = steps.add_then_norm(x, residual, norm, module)
    results = torch.autograd.grad(outs, leaves, grads)
    kept = torch.ones(7, width)
    if dropout_prob:
        with training_kernels(dtype, seed=3):
            kept = mask_of(steps._active().dropout(dropout_prob), x.shape)
    summed = residual + x.float() * kept
    plain = [summed, norm(summed).to(dtype)]
    for ours, reference in zip(outs, plain, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    expected = torch.autograd.grad(plain, leaves, grads)
    for ours, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, reference, rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-4)
    with torch.no_grad():
        for kernel in (CompiledAddThenNorm, PlainAddThenNorm):
            for ours, reference in zip(kernel(norm, dtype)(x, residual), (residual + x, None), strict=True):
                if reference is not None:
                    torch.testing.assert_close(ours, reference)
                else:
                    torch.testing.assert_close(ours, norm(residual + x).to(dtype), rtol=1e-2, atol=1e-5)


LENGTHS_OF_A_BATCH = [17, 9, 3, 33, 1]
POSITIONS, LABELS = torch.tensor([1, 3, 18, 30, 62]), torch.tensor([3, 4, 5, 6, 98])


def network(**changes: float | str) -> Network:
    settings = {
        "vocab_size": 99, "hidden_size": 60, "num_hidden_layers": 4, "num_attention_heads": 3,
        "intermediate_size": 37, "max_position_embeddings": 40, "local_attention": 9,
    }  # fmt: skip
    made = Network(ModernBertConfig(**settings | changes), ["masked_lm"])
    randomize(made, seed=0)
    return made.train()


def batch(seed: int = 0, lengths: Sequence[int] = LENGTHS_OF_A_BATCH) -> Batch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Batch.from_padded(torch.randint(0, 99, mask.shape, generator=torch.Generator().manual_seed(seed)), mask)


def loss(made: Network, given: Batch) -> Loss:
    value = nn.functional.cross_entropy(made(given, masked_positions=POSITIONS).logits["masked_lm"], LABELS)
    return Loss(value, value.detach())


@pytest.mark.full
@pytest.mark.parametrize("hidden_activation", ["gelu", "silu"])
def test_gradients_equal_those_of_torch(hidden_activation: str) -> None:
    made = network(hidden_activation=hidden_activation, classifier_activation=hidden_activation)
    names, parameters = (list(part) for part in zip(*made.named_parameters(), strict=True))
    value = loss(made, batch()).value
    expected = torch.autograd.grad(value, parameters)
    for dtype, tolerance in ((torch.float32, 3e-5), (torch.bfloat16, 0.1)):
        (results,) = compute_gradients(parameters, [batch()], lambda given: loss(made, given), dtype=dtype)
        assert abs(results.value - value) <= tolerance * value
        for name, parameter, reference in zip(names, parameters, expected, strict=True):
            assert parameter.grad.dtype == torch.float32
            assert (parameter.grad - reference).norm() <= tolerance * reference.norm(), (dtype, name)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_everywhere_and_any_number_of_cores(dtype: torch.dtype) -> None:
    made = network(embedding_dropout=0.1, attention_dropout=0.1, mlp_dropout=0.1)
    batches, parameters = [batch(seed) for seed in range(3)], list(made.parameters())
    results, threads_before = [], torch.get_num_threads()
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            losses = compute_gradients(parameters, batches, lambda given: loss(made, given), dtype=dtype, seed=5)
            results.append(([one.value for one in losses], [parameter.grad.clone() for parameter in parameters]))
    finally:
        torch.set_num_threads(threads_before)
    assert results[0][0] == results[1][0]
    assert all(map(torch.equal, results[0][1], results[1][1]))
    other = compute_gradients(parameters, batches, lambda given: loss(made, given), dtype=dtype, seed=6)
    assert [one.value for one in other] != results[0][0]


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("name", ["embedding_dropout", "attention_dropout", "mlp_dropout"])
def test_each_dropout_drops_in_training_alone(name: str) -> None:
    made, without = network(**{name: 0.3}), network()
    with torch.no_grad(), training_kernels(torch.float32, seed=1):
        assert loss(made, batch()).value != loss(without, batch()).value
        assert loss(made.eval(), batch()).value == loss(without, batch()).value


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recomputed_activations_are_bit_identical(dtype: torch.dtype) -> None:
    made = network(attention_dropout=0.2, mlp_dropout=0.2)
    parameters, results = list(made.parameters()), []
    for again in (False, True):
        made.encoder.gradient_checkpointing = again
        compute_gradients(parameters, [batch(1)], lambda given: loss(made, given), dtype=dtype, seed=3)
        results.append([parameter.grad.clone() for parameter in parameters])
    assert all(map(torch.equal, *results))


def random_product(num_rows: int, num_outputs: int) -> tuple[UnscaledProduct, Tensor]:
    """A product of 8-bit numbers without bias, and the same scaled."""
    generator = torch.Generator().manual_seed(num_outputs)
    x, weight = torch.randn(num_rows, 23, generator=generator), torch.randn(num_outputs, 23, generator=generator) / 2
    product = PlainInt8Linear(weight, None)(hidden_states_of(x + 1).quantized)
    scaled = np.empty(product.values.shape, np.float32)
    read_rows(product, scaled)
    torch.testing.assert_close(torch.from_numpy(scaled), (x + 1) @ weight.T, rtol=0, atol=0.2)
    return product, torch.from_numpy(scaled)


def check_8_bits(quantized: Quantized, expected: Tensor, atol: float) -> None:
    """Rows are off by at most half of 1/LARGEST_BYTE of their range, beside ``atol``."""
    expected = torch.from_numpy(rotated(expected.detach().numpy()))
    values = torch.from_numpy(quantized.values).double() - 128
    step = (expected.amax(1) - expected.amin(1)) / LARGEST_BYTE
    rows = values * torch.from_numpy(quantized.scales)[:, None] + torch.from_numpy(quantized.middles)[:, None]
    assert ((rows - expected).abs().amax(1) <= 0.51 * step + atol).all()


@pytest.mark.every_processor
@pytest.mark.parametrize("activation", ["gelu", "silu", "relu"])
@pytest.mark.parametrize("width", [37, 16, 5])
def test_gate_in_8_bits(width: int, activation: str) -> None:
    product, scaled = random_product(6, 2 * width)
    expected = plain_gate(scaled, activation)
    check_8_bits(activate_gate(product, activation), expected, atol=2e-4 * scaled.abs().max())


@pytest.mark.every_processor
@pytest.mark.parametrize("width", [37, 16, 5])
def test_add_then_norm_in_8_bits(width: int) -> None:
    product, scaled = random_product(6, width)
    residual = torch.randn(6, width, generator=torch.Generator().manual_seed(0))
    norm = nn.LayerNorm(width, eps=1e-3, bias=False)
    randomize(norm, 3)
    summed, normed = Int8AddThenNorm(norm, None)(product, residual)
    expected = PlainAddThenNorm(norm, torch.float32)(scaled, residual)
    torch.testing.assert_close((summed, normed.floats), expected, rtol=0, atol=1e-5)
    check_8_bits(normed.quantized, expected[1], atol=1e-5)
