"""CPU kernels of torch's variable-length attention, which lacks them; the rest of the operator is real.

Importing this module registers them: schema, shapes, autograd formula and compilation remain those of torch. They check
what the CUDA kernel demands of its arguments; rows that it does not write are NaN.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen

_forward: Any = varlen._varlen_attn
_backward: Any = varlen._varlen_attn_backward

calls: list[tuple[int, list[int]]] = []
"""(longest sequence, window) of every forward call."""


def _parts(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, window: list[int]
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, Tensor]]:
    """Rows, queries, keys, values (H, L, K) and probabilities (H, L, L) of each sequence, in float32."""
    for start, end in pairwise(cu_seqlens.tolist()):
        q, k, v = (x[start:end].transpose(0, 1).float() for x in (query, key, value))
        at = torch.arange(end - start)
        distance = at - at[:, None]
        hidden = (distance < -window[0]) & (window[0] >= 0) | (distance > window[1]) & (window[1] >= 0)
        scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf)
        yield slice(start, end), q, k, v, scores.softmax(dim=-1)


def _check(tensors: tuple[Tensor, ...], cu_seqlens: Tensor, longest: int, window: list[int], is_causal: bool) -> None:
    assert {tensor.dtype for tensor in tensors} <= {torch.bfloat16, torch.float16} and len(tensors[0]) > 0
    assert all(tensor.stride(-1) == 1 and tensor.shape[-1] % 8 == 0 and tensor.dim() == 3 for tensor in tensors)
    assert cu_seqlens.dtype == torch.int32 and cu_seqlens.is_contiguous()
    assert type(longest) is int and longest >= int(cu_seqlens.diff().max()) and is_causal == (window == [-1, 0])


@_forward.register_kernel("cpu")
@torch.autocast("cpu", enabled=False)
def _(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, scale=None, window_size=None,
    enable_gqa=False, seqused_k=None, block_table=None, num_splits=None,
):  # fmt: skip
    assert cu_seq_q is cu_seq_k or torch.equal(cu_seq_q, cu_seq_k)
    assert max_q == max_k and scale is None and not enable_gqa and seqused_k is block_table is num_splits is None
    _check((query, key, value), cu_seq_q, max_q, window_size, is_causal)
    calls.append((max_q, list(window_size)))
    context = torch.full_like(query, torch.nan)
    for rows, _, _, v, probs in _parts(query, key, value, cu_seq_q, window_size):
        context[rows] = (probs @ v).transpose(0, 1).to(query.dtype)
    return context, torch.zeros(query.shape[1], len(query)), torch.zeros(2, dtype=torch.uint64)


@_backward.register_kernel("cpu")
@torch.autocast("cpu", enabled=False)
def _(
    grad_out, query, key, value, out, lse, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, rng_state, scale=None,
    window_size=None,
):  # fmt: skip
    _check((grad_out, query, key, value), cu_seq_q, max_q, window_size, is_causal)
    gradients = [torch.full_like(x, torch.nan) for x in (query, key, value)]
    for rows, q, k, v, probs in _parts(query, key, value, cu_seq_q, window_size):
        slope = grad_out[rows].transpose(0, 1).float()
        of_probs = slope @ v.transpose(1, 2)
        of_scores = probs * (of_probs - (of_probs * probs).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
        parts = of_scores @ k, of_scores.transpose(1, 2) @ q, probs.transpose(1, 2) @ slope
        for gradient, part in zip(gradients, parts, strict=True):
            gradient[rows] = part.transpose(0, 1).to(gradient.dtype)
    return tuple(gradients)
