"""The kernels in Triton by its interpreter, on the CPU.

Run by test_triton.py.
"""

import math
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from bertkit import Batch, BertConfig
from bertkit.architectures import Network
from bertkit.transformer.kernels import choices, device_attention, triton_attention
from bertkit.transformer.kernels.triton_attention import triton_attention as attention

KEY = -123_456_789
ODD, LARGEST = 0x9E3779B9, 1 << 32


def hashed(bits: Tensor) -> Tensor:
    """lowbias32 in 64-bit integers."""
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D % LARGEST
    bits = (bits ^ (bits >> 15)) * 0x846CA68B % LARGEST
    return bits ^ (bits >> 16)


def mask(first: int, length: int, num_heads: int, probability: float) -> Tensor:
    """(H, L, L) which probabilities of a sequence stay."""
    key = KEY % LARGEST
    rows = (first + torch.arange(length))[:, None] * num_heads + torch.arange(num_heads)
    of_rows = hashed((rows * ODD + key) % LARGEST) | 1
    of_columns = hashed((torch.arange(length) * 0x85EBCA6B + (key ^ 0x5BD1E995)) % LARGEST)
    return of_rows.T[:, :, None] * of_columns % LARGEST >= int(probability * LARGEST)


def plain(joined: Tensor, lengths: list[int], probability: float) -> Tensor:
    """Attention written out."""
    contexts, first = [], 0
    for length in lengths:
        query, key, value = (joined[first : first + length, part].transpose(0, 1) for part in range(3))
        probs = (query @ key.transpose(1, 2) / math.sqrt(joined.shape[-1])).softmax(-1)
        if probability:
            probs = probs * mask(first, length, joined.shape[2], probability) / (1 - probability)
        contexts.append((probs @ value).transpose(0, 1))
        first += length
    return torch.cat(contexts)


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.6])
@pytest.mark.parametrize(
    "lengths", [[5, 128, 1, 64, 0, 63], [70, 3, 129], [300, 17]], ids=lambda lengths: "-".join(map(str, lengths))
)
def test_contexts_and_gradients_are_those_of_attention_written_out(lengths: list[int], probability: float) -> None:
    torch.manual_seed(0)
    joined = torch.randn(sum(lengths), 3, 2, 16, requires_grad=True)
    slopes = torch.randn(sum(lengths), 2, 16)
    cu_seqlens = torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32)
    key = torch.tensor(KEY, dtype=torch.int32) if probability else None
    results = []
    for context in (attention(joined, cu_seqlens, max(lengths), probability, key), plain(joined, lengths, probability)):
        results.append((context, *torch.autograd.grad(context, joined, slopes)))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=5e-6)


def test_gradients_where_all_scores_are_far_below_zero() -> None:
    torch.manual_seed(0)
    joined = torch.randn(3, 3, 1, 16)
    joined[:, 0], joined[:, 1] = joined[:, 0].abs() + 5, joined[:, 1] - 10
    joined.requires_grad_()
    cu_seqlens, slopes = torch.tensor([0, 3], dtype=torch.int32), torch.randn(3, 1, 16)
    results = []
    for context in (attention(joined, cu_seqlens, 3), plain(joined, [3], 0.0)):
        results.append((context, *torch.autograd.grad(context, joined, slopes)))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_masks_are_random() -> None:
    stays = mask(0, 1_024, 1, 0.1)[0].double()
    assert abs(float(stays.mean()) - 0.9) < 0.002
    centered = (stays - 0.9) / 0.3
    for one in (centered, centered.T):  # rows, and columns, are not correlated
        products = (one @ one.T / 32).fill_diagonal_(0)
        assert 0.9 < float(products.pow(2).mean().sqrt()) < 1.1 and float(products.abs().max()) < 8


def test_a_compiled_network_computes_with_them(monkeypatch) -> None:
    torch.manual_seed(0)
    config = BertConfig.of_size("tiny", vocab_size=100, hidden_size=64, num_attention_heads=2, intermediate_size=128,
                                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    network = Network(config, ["masked_lm"]).train()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    there = torch.arange(40) < torch.tensor([3, 40, 25])[:, None]
    batch = Batch.from_padded(torch.randint(0, 100, there.shape), there)

    def loss() -> Tensor:
        return network(batch).logits["masked_lm"].pow(2).mean()

    calls, prepare = [], triton_attention._dropout
    monkeypatch.setattr(triton_attention, "_dropout", lambda *given: calls.append(given) or prepare(*given))
    expected = torch.autograd.grad(loss(), list(network.parameters()), allow_unused=True)
    monkeypatch.setattr(device_attention, "kernel_for", lambda *given, **options: "varlen")
    monkeypatch.setattr(choices, "capability_of", lambda device: (9, 0))
    ours = torch.autograd.grad(
        torch.compile(loss, fullgraph=True, backend="aot_eager")(), list(network.parameters()), allow_unused=True
    )
    assert len(calls) == 3 * config.num_hidden_layers  # once in the forward pass, twice in the backward pass
    for one, other in zip(ours, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
