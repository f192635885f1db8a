"""Self-attention over packed sequences, without a loop over sequences on a GPU.

A GPU has two kernels with the arguments of `packed_attention`, their reference: torch's FlashAttention for sequences of
different lengths in 16-bit numbers, and blocks of the packed row for the rest. Compiled training has another one. All
take cumulative lengths on the device and the longest length as an int, so nothing waits for the GPU. Shape letters: T
total_tokens, H num_heads, K head_dim, N blocks, C tokens of a block, S tokens that a block sees.
"""

import importlib.util
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.batch import Batch
from bertkit.transformer.kernels.attention import packed_attention
from bertkit.transformer.kernels.device_steps import new_key
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary, rotate
from bertkit.transformer.window import Window, window_of

Kernel = Literal["varlen", "blocks", "runs"]

_FIRST_CAPABILITY, _LARGEST_HEAD = (8, 0), 256
"""Limits of FlashAttention 2: Ampere and later; also a multiple of 8 columns."""
_FIRST_OF_TRITON, _LONGEST_OF_TRITON, _HEADS_OF_TRITON = (9, 0), 512, (16, 32, 64)
"""Where `compiled_attention` was measured to be faster: Hopper."""
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def kernel_for(
    device_type: str,
    capability: tuple[int, int],
    dtype: torch.dtype,
    head_dim: int,
    bias: Tensor | PositionRows | None = None,
) -> Kernel:
    """The kernel of self-attention; every kernel computes every window, and dropout.

    Returns:
        "varlen": `varlen_attention`, which has no bias. "blocks": `block_attention`. "runs": `packed_attention`, the
        reference, on the CPU and for relative positions.
    """
    if device_type == "cpu" or isinstance(bias, PositionRows):
        return "runs"
    is_offered = device_type == "cuda" and capability >= _FIRST_CAPABILITY
    fits = dtype in (torch.bfloat16, torch.float16) and head_dim % 8 == 0 and head_dim <= _LARGEST_HEAD
    return "varlen" if is_offered and fits and bias is None else "blocks"


def capability_of(device: torch.device) -> tuple[int, int]:
    """The compute capability of a CUDA device, (0, 0) of others; torch's compiler reads it as a constant."""
    if device.type != "cuda" or torch.version.hip is not None:
        return 0, 0
    properties = torch.cuda.get_device_properties(device)
    return properties.major, properties.minor


def batch_attention(
    query_key_value: Tensor,
    batch: Batch,
    num_heads: int,
    dropout_prob: float = 0.0,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | PositionRows | None = None,
) -> Tensor:
    """Attention within each sequence of a batch, with the fastest kernel on its device: (T, 3 D) to (T, D).

    Args:
        rotary: angles for rotating queries and keys first; None: no rotation.
        window, bias: as for `packed_attention`.
    """
    query, key, value = query_key_value.unflatten(-1, (3, num_heads, -1)).unbind(1)  # (T, H, K) each
    if rotary is not None:
        query, key = rotate(query, rotary), rotate(key, rotary)
    device = query.device
    kernel = kernel_for(device.type, capability_of(device), query.dtype, query.shape[-1], bias)
    if kernel == "varlen" and rotary is None and window is None and is_for_triton(query, batch):
        context = compiled_attention(query_key_value.unflatten(-1, (3, num_heads, -1)), batch, dropout_prob)
    elif kernel == "varlen":
        context = varlen_attention(query, key, value, batch, dropout_prob, window)
    elif kernel == "blocks":
        assert not isinstance(bias, PositionRows)
        context = block_attention(query, key, value, batch, dropout_prob, window, bias)
    else:
        context = packed_attention(query, key, value, batch.seqlens, dropout_prob, window, bias)
    return context.flatten(-2)


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: Batch,
    dropout_prob: float = 0.0,
    window: int | Window | None = None,
) -> Tensor:
    """`packed_attention` by FlashAttention 2 (Dao 2023): (T, H, K) each to the same.

    torch's public function for it, `varlen_attn`, has no dropout. Rows after the last sequence of the batch are
    undefined, unless `Batch.has_filler`.
    """
    longest, seen, cu_seqlens = batch.max_seqlen, window_of(window), _cu_seqlens_of(batch)
    left, right = (-1, -1) if seen is None else (-1 if reach >= longest else reach for reach in seen)
    context, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, cu_seqlens, cu_seqlens, longest, longest, dropout_prob, (left, right) == (-1, 0), False,
        window_size_left=left, window_size_right=right,
    )  # fmt: skip
    return context


def compiled_attention(query_key_value: Tensor, batch: Batch, dropout_prob: float) -> Tensor:
    """`packed_attention` without a window, by kernels in Triton: (T, 3, H, K) to (T, H, K); see `triton_attention`."""
    from bertkit.transformer.kernels.triton_attention import triton_attention

    key = new_key(query_key_value.device) if dropout_prob else None
    return triton_attention(query_key_value, _cu_seqlens_of(batch), batch.max_seqlen, dropout_prob, key)


def is_for_triton(query: Tensor, batch: Batch) -> bool:
    """True where `compiled_attention` is faster than `varlen_attention`: while torch compiles, so in training."""
    is_short = batch.max_seqlen <= _LONGEST_OF_TRITON and query.shape[-1] in _HEADS_OF_TRITON
    is_offered = _HAS_TRITON and capability_of(query.device) >= _FIRST_OF_TRITON
    return torch.compiler.is_compiling() and is_short and is_offered


def _cu_seqlens_of(batch: Batch) -> Tensor:
    """Cumulative lengths of the sequences; filler is one more sequence."""
    return F.pad(batch.cu_seqlens, (0, 1), value=len(batch.input_ids)) if batch.has_filler else batch.cu_seqlens


def block_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: Batch,
    dropout_prob: float = 0.0,
    window: int | Window | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`packed_attention` by one product over blocks of the packed row: (T, H, K) each to the same.

    A block has at least as many tokens as a query sees on a side, so that it sees itself and its neighbors; a mask
    hides other sequences. Memory and time grow with T times the longest sequence, regardless of other lengths: at most
    three times the scores that attention to the longest sequence needs. Rows after the last sequence of the batch form
    a sequence.
    """
    num_tokens, device = len(query), query.device
    seen = (window_of(window) or Window(batch.max_seqlen, batch.max_seqlen)).within(batch.max_seqlen - 1)
    size = -(-(1 + max(seen)) // 8) * 8  # kernels read masks in eights
    before, after = (size if reach else 0 for reach in seen)
    missing = -num_tokens % size
    whole = before + size + after
    # (N C, H, K) -> (N, H, C, K); keys and values are views of overlapping parts, (N, H, S, K)
    q = F.pad(query, (0, 0, 0, 0, 0, missing)).unflatten(0, (-1, size)).transpose(1, 2)
    k, v = (
        F.pad(x, (0, 0, 0, 0, before, missing + after)).unfold(0, whole, size).transpose(2, 3) for x in (key, value)
    )
    tokens = torch.arange(num_tokens, dtype=torch.int32, device=device)
    sequence = torch.searchsorted(batch.cu_seqlens[1:], tokens, right=True)  # (T,) number of the sequence
    own = F.pad(sequence, (0, missing), value=-1).unflatten(0, (-1, size))  # (N, C)
    others = F.pad(sequence, (before, missing + after), value=-1).unfold(0, whole, size)  # (N, S)
    distance = torch.arange(-before, size + after, device=device) - torch.arange(size, device=device)[:, None]  # (C, S)
    near = (distance >= -seen.before) & (distance <= seen.after)
    mask = ((own[:, :, None] == others[:, None]) & near)[:, None]  # (N, 1, C, S); every row sees itself
    if bias is not None:
        columns = (bias.shape[1] // 2 + distance).clamp(0, bias.shape[1] - 1)
        mask = bias[:, columns].to(query.dtype).masked_fill(~mask, -torch.inf)  # (N, H, C, S)
    attended = F.scaled_dot_product_attention(q, k, v, mask, dropout_prob)
    return attended.transpose(1, 2).flatten(0, 1)[:num_tokens]
