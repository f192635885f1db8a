"""Self-attention over packed sequences, without a loop over sequences on a GPU.

A GPU has two kernels with the arguments of `packed_attention`, their reference: torch's FlashAttention for sequences of
different lengths in 16-bit numbers, and blocks of the packed row for the rest. Compiled training has another one. All
take cumulative lengths on the device and the longest length as an int, so nothing waits for the GPU. Shape letters: T
total_tokens, H num_heads, K head_dim, N blocks, C tokens of a block, S tokens that a block sees.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.batch import Batch
from bertkit.transformer.kernels.attention import packed_attention
from bertkit.transformer.kernels.choices import capability_of, is_for_triton, kernel_for
from bertkit.transformer.kernels.device_steps import new_key
from bertkit.transformer.relative import PositionRows
from bertkit.transformer.rotary import Rotary, rotate
from bertkit.transformer.window import Window, window_of


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
    if kernel == "varlen" and rotary is None and window is None and is_for_triton(query, batch.max_seqlen):
        context = short_attention(query_key_value.unflatten(-1, (3, num_heads, -1)), batch, dropout_prob)
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


def short_attention(query_key_value: Tensor, batch: Batch, dropout_prob: float) -> Tensor:
    """`packed_attention` without a window, by kernels in Triton: (T, 3, H, K) to (T, H, K); see `triton_attention`."""
    from bertkit.transformer.kernels.triton_attention import triton_attention

    key = new_key(query_key_value.device) if dropout_prob else None
    return triton_attention(query_key_value, _cu_seqlens_of(batch), batch.max_seqlen, dropout_prob, key)


def sequence_attention(
    query_key_value: Tensor,
    batch: Batch,
    num_heads: int,
    head_dim: int,
    rotary: Rotary | None = None,
    window: int | Window | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`plain_attention` without gradients, with the same bits of a sequence in any batch: (T, (H + 2 G) K) to (T, H K).

    Rows after the last sequence of the batch are undefined, unless `Batch.has_filler`.
    """
    from bertkit.transformer.kernels.triton_attention import invariant_attention

    if rotary is not None:
        heads = query_key_value.unflatten(-1, (-1, head_dim))
        num_turned = (num_heads + heads.shape[1]) // 2  # queries and keys
        turned = rotate(heads[:, :num_turned], rotary)
        query_key_value = torch.cat([turned, heads[:, num_turned:]], dim=1).flatten(1)
    lengths = _cu_seqlens_of(batch), batch.max_seqlen
    return invariant_attention(query_key_value, *lengths, num_heads, head_dim, window_of(window), bias)


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
