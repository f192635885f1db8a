"""Packed batches, and conversion from and to padded tensors.

A padded batch is a rectangle of B sequences by L columns, in which shorter sequences are filled up with [PAD]. In a
packed batch the sequences lie end to end in one row, so nothing is computed for padding. Three sequences of 2, 4 and 3
tokens form a row of 9; ``cu_seqlens``, the cumulative lengths, are the start of each sequence and the end of the last:

    input_ids    [a a b b b b c c c]        cu_seqlens [0 2 6 9]
    position_ids [0 1 0 1 2 3 0 1 2]        max_seqlen 4

Shape letters: B batch_size, L seq_len, T total_tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.device import send_together
from bertkit.errors import UsageError
from bertkit.later import F, torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences packed end to end: the input of the encoder. Tensors, or arrays for networks with arrays."""

    input_ids: Tensor  # (T,) int64
    token_type_ids: Tensor  # (T,) int64, 0 = text A, 1 = text B
    position_ids: Tensor  # (T,) int64, index of the token in its sequence: row of the position table
    cu_seqlens: Tensor  # (B + 1,) int32, cumulative lengths from 0 to T
    max_seqlen: int  # number of tokens of the longest sequence
    num_positions: int  # highest position + 1; max_seqlen unless the batch was padded on the left
    padded_mask: Tensor | None = field(default=None, repr=False)  # (B, L) bool, the mask of the padded input, if there
    # was one
    has_filler: bool = False  # there are rows after the last sequence that belong to none; in attention they are one
    # more sequence, of at most max_seqlen tokens

    @classmethod
    def from_padded(
        cls,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        restart_positions: bool = False,
    ) -> Batch:
        """Pack padded tensors, arrays or lists. Tokens with mask 0 are removed, so nothing is computed for them.

        Args:
            input_ids: (batch_size, seq_len) integers.
            attention_mask: (batch_size, seq_len), 1 = real token, 0 = padding; None: all real.
            token_type_ids: (batch_size, seq_len), 0 = text A, 1 = text B; None: all 0.
            restart_positions: count the positions of each sequence from 0. By default a token's position is its
                column, as in published BERT code. The two differ only with padding on the left, where the published
                pooler reads column 0, a pad, and ours the first real token.

        Raises:
            UsageError: shapes differ, or a row has no real token.
        """
        input_ids = torch.as_tensor(input_ids)
        attention_mask, token_type_ids = (
            None if one is None else torch.as_tensor(one, device=input_ids.device)
            for one in (attention_mask, token_type_ids)
        )
        if input_ids.dim() != 2 or not len(input_ids):
            raise UsageError(f"input_ids has shape {tuple(input_ids.shape)}: expected (batch_size, seq_len)")
        for name, tensor in (("attention_mask", attention_mask), ("token_type_ids", token_type_ids)):
            if tensor is not None and tensor.shape != input_ids.shape:
                raise UsageError(
                    f"{name} has shape {tuple(tensor.shape)}, input_ids {tuple(input_ids.shape)}: expected equal shapes"
                )
        mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        seqlens = mask.sum(dim=1)
        if (seqlens == 0).any():
            raise UsageError(f"row {int((seqlens == 0).nonzero()[0])} of the attention_mask has no real token")
        columns = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        positions = mask.cumsum(dim=1) - 1 if restart_positions else columns
        position_ids = positions[mask]
        cu_seqlens = torch.zeros(len(seqlens) + 1, dtype=torch.int32, device=input_ids.device)
        cu_seqlens[1:] = seqlens.cumsum(0)
        return cls(
            input_ids=input_ids[mask].long(),
            token_type_ids=torch.zeros_like(position_ids) if token_type_ids is None else token_type_ids[mask].long(),
            position_ids=position_ids,
            cu_seqlens=cu_seqlens,
            max_seqlen=int(seqlens.max()),
            num_positions=int(position_ids.max()) + 1,
            padded_mask=mask,
        )

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.cu_seqlens) - 1

    @cached_property
    def seqlens(self) -> list[int]:
        """Number of tokens in each sequence."""
        return (self.cu_seqlens[1:] - self.cu_seqlens[:-1]).tolist()

    @property  # not cached: a recorded CUDA graph would keep the value of its first batch
    def first_tokens(self) -> Tensor:
        """(B,) index of the [CLS] of each sequence in the packed row."""
        first: Any = self.cu_seqlens[:-1]
        return first.astype(np.int64) if self.is_in_arrays else first.long()

    def between(self, start: int, end: int) -> Batch:
        """The sequences from ``start`` to ``end`` (exclusive), without copying; not for a batch from padded tensors."""
        first, last = int(self.cu_seqlens[start]), int(self.cu_seqlens[end])
        tokens, max_seqlen = slice(first, last), int(self.cu_seqlens[start : end + 1].diff().max())
        return Batch(
            input_ids=self.input_ids[tokens],
            token_type_ids=self.token_type_ids[tokens],
            position_ids=self.position_ids[tokens],
            cu_seqlens=self.cu_seqlens[start : end + 1] - first,
            max_seqlen=max_seqlen,
            num_positions=max_seqlen,
        )

    def filled(self, num_rows: int) -> Batch:
        """The batch with rows of zeros after its last sequence, up to ``num_rows`` rows in all, which belong to no
        sequence: matrix products are computed at certain numbers of rows."""
        num_missing = num_rows - len(self.input_ids)
        if not num_missing:
            return self
        missing = 0, num_missing
        pad_row = partial(np.pad, pad_width=missing) if self.is_in_arrays else partial(F.pad, pad=missing)
        return replace(self, **{name: pad_row(getattr(self, name)) for name in _OF_TOKENS})

    def attention_mask(self) -> Tensor:
        """(B, L) bool, True = real token: the mask of the padded input, else padding on the right."""
        if self.padded_mask is not None:
            return self.padded_mask
        columns = torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        return columns[None, :] < self.cu_seqlens.diff()[:, None]

    def pad(self, values: Tensor, fill: float = 0) -> Tensor:
        """Per-token values (T, ...) to (B, L, ...): in the layout of the padded input, else padded on the right, with
        ``fill``."""
        return pad(values, self.attention_mask(), fill)

    @property
    def is_in_arrays(self) -> bool:
        """Whether this is a batch of arrays."""
        return isinstance(self.input_ids, np.ndarray)

    def as_arrays(self) -> Batch:
        """A batch on the CPU as arrays of the same memory."""
        if self.is_in_arrays:
            return self
        names = (*_OF_TOKENS, "cu_seqlens")
        return replace(self, **{name: getattr(self, name).numpy() for name in names})

    def as_tensors(self) -> Batch:
        """A batch of arrays as tensors of the same memory."""
        names = (*_OF_TOKENS, "cu_seqlens")
        return replace(self, **{name: torch.from_numpy(getattr(self, name)) for name in names})

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device, in one copy; `seqlens` remain numbers of the CPU."""
        if self.input_ids.device == torch.device(device):
            return self
        names = (*_OF_TOKENS, "cu_seqlens")
        tensors = send_together([getattr(self, name) for name in names], device)
        mask = None if self.padded_mask is None else self.padded_mask.to(device)
        moved = replace(self, **dict(zip(names, tensors, strict=True)), padded_mask=mask)
        vars(moved)["seqlens"] = self.seqlens  # otherwise read from the device
        return moved


_OF_TOKENS = ("input_ids", "token_type_ids", "position_ids")


def pad(values: Tensor, attention_mask: Tensor, fill: float = 0) -> Tensor:
    """Packed (T, ...) values to (B, L, ...): in order, wherever ``attention_mask`` (B, L) is not 0; elsewhere ``fill``.

    Raises:
        UsageError: the number of values is not the number of real tokens.
    """
    mask = attention_mask.bool()
    if int(mask.sum()) != len(values):
        raise UsageError(
            f"{len(values)} packed values for an attention_mask with {int(mask.sum())} real tokens: expected the same "
            "number"
        )
    padded = values.new_full((*mask.shape, *values.shape[1:]), fill)
    padded[mask] = values
    return padded


def unpad(padded: Tensor, attention_mask: Tensor) -> Tensor:
    """(B, L, ...) to packed (T, ...): row by row, wherever ``attention_mask`` (B, L) is not 0."""
    return padded[attention_mask.bool()]
