"""Attention on GPUs, as far as it can be tested on a CPU: the choice of a kernel, its arguments, its numbers."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import flash_attention_on_cpu
import pytest
import torch
from torch import Tensor

from bertkit import Batch
from bertkit.errors import UsageError
from bertkit.transformer.kernels import choices, device_attention
from bertkit.transformer.kernels.attention import packed_attention
from bertkit.transformer.kernels.device_attention import block_attention, kernel_for, varlen_attention
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.window import CAUSAL, EVERY_TOKEN, REVERSED, Window

LENGTHS = [5, 1, 33, 17, 8, 8, 26, 2]
WINDOWS = [None, CAUSAL, REVERSED, 3, 0, Window(2, 9), Window(60, 1)]
AMPERE, HOPPER, TURING, NO_GPU = (8, 0), (9, 0), (7, 5), (0, 0)
RELATIVE = PositionRows(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, dtype=torch.long), 1.0)


def packed(lengths: list[int], num_filler: int = 0, num_empty: int = 0) -> Batch:
    """A batch of these lengths, then tokens after the last sequence, and empty sequences."""
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    batch = Batch.from_padded(ids, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])
    batch = batch.filled(sum(lengths) + num_filler)
    object.__setattr__(
        batch, "cu_seqlens", torch.nn.functional.pad(batch.cu_seqlens, (0, num_empty), value=sum(lengths))
    )
    return batch


def random_inputs(num_tokens: int, num_heads: int, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(num_tokens)
    together = torch.randn(num_tokens, 3, num_heads, head_dim, generator=generator).to(dtype).requires_grad_()
    return together, *together.unbind(1)


def test_same_bits_in_any_batch_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.delenv(choices.BATCH_INVARIANT, raising=False)
    assert choices.is_batch_invariant(cpu) and not choices.is_batch_invariant(cuda)
    assert not choices.is_batch_invariant(torch.device("mps"))
    monkeypatch.setenv(choices.BATCH_INVARIANT, "1")
    monkeypatch.setattr(choices, "_HAS_TRITON", True)
    assert choices.is_batch_invariant(cuda) and not choices.has_invariant_kernels(torch.ones(1))
    monkeypatch.setattr(choices, "_HAS_TRITON", False)
    with pytest.raises(UsageError, match="BERTKIT_BATCH_INVARIANT=1 needs triton"):
        choices.is_batch_invariant(cuda)
    monkeypatch.setenv(choices.BATCH_INVARIANT, "yes")
    with pytest.raises(UsageError, match="BERTKIT_BATCH_INVARIANT='yes': expected 1"):
        choices.is_batch_invariant(cuda)


@pytest.mark.parametrize(
    ("kernel", "device", "capability", "dtype", "head_dim", "bias"),
    [
        ("varlen", "cuda", HOPPER, torch.bfloat16, 64, None),
        ("varlen", "cuda", AMPERE, torch.float16, 32, None),
        ("varlen", "cuda", AMPERE, torch.bfloat16, 256, None),
        ("blocks", "cuda", AMPERE, torch.bfloat16, 264, None),
        ("blocks", "cuda", AMPERE, torch.bfloat16, 20, None),
        ("blocks", "cuda", HOPPER, torch.float32, 64, None),
        ("blocks", "cuda", HOPPER, torch.float64, 64, None),
        ("blocks", "cuda", TURING, torch.float16, 64, None),
        ("blocks", "cuda", NO_GPU, torch.bfloat16, 64, None),  # of another maker
        ("blocks", "cuda", HOPPER, torch.bfloat16, 64, torch.zeros(3, 9)),
        ("runs", "cuda", HOPPER, torch.bfloat16, 64, RELATIVE),
        ("blocks", "mps", NO_GPU, torch.bfloat16, 64, None),
        ("blocks", "mps", NO_GPU, torch.float32, 64, None),
        ("runs", "mps", NO_GPU, torch.float32, 64, RELATIVE),
        ("runs", "cpu", NO_GPU, torch.bfloat16, 64, None),
        ("runs", "cpu", NO_GPU, torch.float64, 20, None),
    ],
)
def test_kernel_by_device_dtype_and_options(kernel, device, capability, dtype, head_dim, bias) -> None:
    assert kernel_for(device, capability, dtype, head_dim, bias) == kernel


def test_cpu_has_no_properties_of_a_gpu() -> None:
    assert device_attention.capability_of(torch.device("cpu")) == NO_GPU


def test_properties_of_a_cuda_device(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=9, minor=0))
    assert device_attention.capability_of(torch.device("cuda:1")) == HOPPER
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert device_attention.capability_of(torch.device("cuda:1")) == NO_GPU


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("num_filler", "num_empty"), [(0, 0), (9, 3)])
def test_blocks_equal_the_reference(window: int | Window | None, num_filler: int, num_empty: int) -> None:
    batch, num_tokens = packed(LENGTHS, num_filler, num_empty), sum(LENGTHS)
    together, *inputs = random_inputs(num_tokens + num_filler, 3, 20, torch.float64)
    results = block_attention(*inputs, batch, window=window)
    expected = packed_attention(*(x[:num_tokens] for x in inputs), LENGTHS, window=window)
    assert results.isfinite().all() and len(results) == len(together)
    torch.testing.assert_close(results[:num_tokens], expected)
    slope = torch.randn(expected.shape, dtype=torch.float64)
    ours, reference = (torch.autograd.grad((x * slope).sum(), together)[0] for x in (results[:num_tokens], expected))
    torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("lengths", [[1], [8], [1, 1, 1], [40, 3], [3, 40], [64, 64]])
def test_blocks_with_any_lengths(lengths: list[int]) -> None:
    for window in (None, CAUSAL, 5):
        _, *inputs = random_inputs(sum(lengths), 2, 8, torch.float64)
        results = block_attention(*inputs, packed(lengths), window=window)
        torch.testing.assert_close(results, packed_attention(*inputs, lengths, window=window))


def test_blocks_add_a_bias_by_distance() -> None:
    together, *inputs = random_inputs(sum(LENGTHS), 3, 20, torch.float64)
    bias = torch.randn(3, 2 * max(LENGTHS) - 1, dtype=torch.float64, requires_grad=True)
    results = block_attention(*inputs, packed(LENGTHS), bias=bias)
    expected = packed_attention(*inputs, LENGTHS, bias=bias)
    torch.testing.assert_close(results, expected)
    slope = torch.randn(expected.shape, dtype=torch.float64)
    for ours, reference in zip(
        *(torch.autograd.grad((x * slope).sum(), [together, bias]) for x in (results, expected)), strict=True
    ):
        torch.testing.assert_close(ours, reference)


def test_blocks_drop_probabilities() -> None:
    _, query, key, value = random_inputs(sum(LENGTHS), 3, 20, torch.float64)
    torch.manual_seed(0)
    shares = block_attention(query, key, torch.ones_like(value), packed(LENGTHS), 0.3)[:, :, 0].detach()
    assert shares.std() > 0.1 and abs(float(shares.mean()) - 1) < 0.1  # kept probabilities, divided by 0.7
    assert torch.equal(shares[5] != 0, (shares[5] - 1 / 0.7).abs() < 1e-12)  # a sequence of one token


@pytest.mark.full(sample=2)
@pytest.mark.parametrize("window", WINDOWS)
def test_arguments_of_varlen_attention_mean_the_reference(window: int | Window | None) -> None:
    batch = packed(LENGTHS, num_filler=4, num_empty=2)
    together, *inputs = random_inputs(sum(LENGTHS) + 4, 3, 16, torch.bfloat16)
    results = varlen_attention(*inputs, batch, window=window)[: sum(LENGTHS)]
    expected = packed_attention(*(x[: sum(LENGTHS)] for x in inputs), LENGTHS, window=window)
    torch.testing.assert_close(results, expected, rtol=2e-2, atol=1e-2)
    slope = torch.randn(expected.shape).bfloat16()
    ours, reference = (torch.autograd.grad((x * slope).sum(), together)[0] for x in (results, expected))
    torch.testing.assert_close(ours[: sum(LENGTHS)], reference[: sum(LENGTHS)], rtol=2e-2, atol=2e-2)
    longest, given = flash_attention_on_cpu.calls[-1]
    assert longest == max(LENGTHS) and all(-1 <= reach < longest for reach in given)
    assert (given == (-1, 0)) == (window == CAUSAL) and (given == (-1, -1)) == (window is None)


def test_varlen_attention_drops_probabilities() -> None:
    query, key, value = (x.detach().requires_grad_() for x in random_inputs(sum(LENGTHS), 3, 16, torch.bfloat16)[1:])
    torch.manual_seed(0)
    shares = varlen_attention(query, key, torch.ones_like(value), packed(LENGTHS), 0.25)[:, :, 0].detach()
    assert shares.std() > 0.1 and abs(float(shares.mean()) - 1) < 0.1
    torch.manual_seed(0)  # the backward pass has the same mask
    context = varlen_attention(query, key, value, packed(LENGTHS), 0.25)
    (slopes,) = torch.autograd.grad(context.sum(), value)
    torch.testing.assert_close(slopes.float().sum(), shares.float().sum() * 16, rtol=2e-2, atol=0)


def test_filler_of_a_batch_is_a_sequence() -> None:
    batch = replace(packed(LENGTHS, num_filler=9), has_filler=True)
    together, *inputs = random_inputs(sum(LENGTHS) + 9, 3, 16, torch.bfloat16)
    results = varlen_attention(*inputs, batch)
    expected = packed_attention(*inputs, [*LENGTHS, 9])
    torch.testing.assert_close(results, expected, rtol=2e-2, atol=1e-2)
    assert torch.autograd.grad(results.sum(), together)[0].isfinite().all()


@pytest.mark.parametrize("kernel", ["varlen", "blocks", "runs"])
@pytest.mark.parametrize("window", [None, Window(4, EVERY_TOKEN)])
def test_every_kernel_computes_the_same(kernel: str, window: Window | None, monkeypatch) -> None:
    monkeypatch.setattr(device_attention, "kernel_for", lambda *given, **options: kernel)
    together = random_inputs(sum(LENGTHS), 3, 16, torch.bfloat16)[0].flatten(1)
    results = device_attention.batch_attention(together, packed(LENGTHS), 3, window=window)
    monkeypatch.undo()
    expected = device_attention.batch_attention(together.float(), packed(LENGTHS), 3, window=window)
    torch.testing.assert_close(results.float(), expected, rtol=2e-2, atol=2e-2)


def test_wrong_arguments_of_varlen_attention_fail() -> None:
    """The double refuses what the CUDA kernel refuses, and torch's schema the rest."""
    _, *inputs = random_inputs(4, 2, 8, torch.bfloat16)
    batch = packed([4])
    wrong: list[Callable[[], object]] = [
        lambda: varlen_attention(*inputs, replace(batch, cu_seqlens=batch.cu_seqlens.long())),
        lambda: varlen_attention(*inputs, replace(batch, max_seqlen=3)),
        lambda: varlen_attention(*(x.float() for x in inputs), batch),  # pyrefly: ignore
        lambda: varlen_attention(*inputs, replace(batch, max_seqlen=4.5)),  # pyrefly: ignore
    ]
    for call in wrong:
        with pytest.raises((AssertionError, TypeError, RuntimeError)):
            call()
