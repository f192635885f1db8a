"""Kernels of FlashAttention for the CPU, which torch lacks: for `varlen_attention` there and on the simulated GPU.

Importing this module registers them. They check what the CUDA kernels demand of their arguments; rows that they do not
write are NaN.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("aten", "IMPL")

calls: list[tuple[int, tuple[int, int]]] = []
"""(longest sequence, window) of every forward call."""


def _window(left: int | None, right: int | None) -> tuple[int, int]:
    """The window with -1 for no limit."""
    return -1 if left is None else left, -1 if right is None else right


def _parts(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, window: tuple[int, int], dropout_p: float, seed: int
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """Rows, queries, keys, values (H, L, K), probabilities and their factors of dropout (H, L, L) of each sequence, in
    float32."""
    generator = torch.Generator().manual_seed(seed)
    for start, end in pairwise(cu_seqlens.tolist()):
        q, k, v = (x[start:end].transpose(0, 1).float() for x in (query, key, value))
        at = torch.arange(end - start)
        distance = at - at[:, None]
        hidden = (distance < -window[0]) & (window[0] >= 0) | (distance > window[1]) & (window[1] >= 0)
        scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf)
        kept = torch.rand(scores.shape, generator=generator) >= dropout_p
        yield slice(start, end), q, k, v, scores.softmax(dim=-1), kept / (1 - dropout_p)


def _check(
    tensors: tuple[Tensor, ...], cu_seqlens: Tensor, longest: int, dropout_p: float, is_causal: bool,
    window: tuple[int, int], **others: Any,
) -> None:  # fmt: skip
    assert {tensor.dtype for tensor in tensors} <= {torch.bfloat16, torch.float16} and len(tensors[0]) > 0
    assert all(tensor.stride(-1) == 1 and tensor.shape[-1] % 8 == 0 and tensor.dim() == 3 for tensor in tensors)
    assert cu_seqlens.dtype == torch.int32 and cu_seqlens.is_contiguous()
    assert type(longest) is int and longest >= int(cu_seqlens.diff().max()) and is_causal == (window == (-1, 0))
    assert 0 <= dropout_p < 1 and all(other is None for other in others.values()), others


@torch.autocast("cpu", enabled=False)
def _forward(
    query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *,
    window_size_left=None, window_size_right=None, **others,
):  # fmt: skip
    window = _window(window_size_left, window_size_right)
    assert cum_seq_q is cum_seq_k or torch.equal(cum_seq_q, cum_seq_k)
    assert max_q == max_k and not return_debug_mask
    _check((query, key, value), cum_seq_q, max_q, dropout_p, is_causal, window, **others)
    calls.append((max_q, window))
    context = torch.full_like(query, torch.nan)
    seed = int(torch.randint(1 << 40, ())) if dropout_p else 0
    for rows, _, _, v, probs, factors in _parts(query, key, value, cum_seq_q, window, dropout_p, seed):
        context[rows] = (probs * factors @ v).transpose(0, 1).to(query.dtype)
    state, none = torch.tensor([seed, 0], dtype=torch.uint64), torch.zeros(0, dtype=torch.uint64)
    return context, torch.zeros(query.shape[1], len(query)), state, none, torch.zeros(0)


@torch.autocast("cpu", enabled=False)
def _backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, rng_state,
    unused, *, window_size_left=None, window_size_right=None, **others,
):  # fmt: skip
    window = _window(window_size_left, window_size_right)
    grad_out = grad_out.contiguous()  # as CUDA's does first
    _check((grad_out, query, key, value), cum_seq_q, max_q, dropout_p, is_causal, window, **others)
    gradients = [torch.full_like(x, torch.nan) for x in (query, key, value)]
    seed = int(rng_state[0])
    for rows, q, k, v, probs, factors in _parts(query, key, value, cum_seq_q, window, dropout_p, seed):
        slope = grad_out[rows].transpose(0, 1).float()
        of_probs = slope @ v.transpose(1, 2) * factors
        of_scores = probs * (of_probs - (of_probs * probs).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
        parts = of_scores @ k, of_scores.transpose(1, 2) @ q, (probs * factors).transpose(1, 2) @ slope
        for gradient, part in zip(gradients, parts, strict=True):
            gradient[rows] = part.transpose(0, 1).to(gradient.dtype)
    return tuple(gradients)


LIBRARY.impl("_flash_attention_forward", _forward, "CPU")
LIBRARY.impl("_flash_attention_backward", _backward, "CPU")
