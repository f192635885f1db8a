"""Collate encodings into one packed Batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from bertkit.batch.batch import Batch
from bertkit.errors import UsageError
from bertkit.tokenizer import Encoding, Encodings


class TokenSequence(Protocol):
    """The fields of a sequence that a batch needs; an Encoding has them."""

    @property
    def input_ids(self) -> np.ndarray: ...
    @property
    def token_type_ids(self) -> np.ndarray: ...
    def __len__(self) -> int: ...


def collate(encodings: Encodings | Iterable[TokenSequence], *, in_arrays: bool = False) -> Batch:
    """Pack sequences end to end, in order, as tensors or arrays; Encodings are packed already.

    Raises:
        UsageError: no encodings, one Encoding without a list, or something else, such as a text.
    """
    if isinstance(encodings, Encoding):
        raise UsageError("collate got one Encoding: expected a list of them, as in collate([encoding])")
    if not isinstance(encodings, Iterable):
        raise UsageError(f"collate got {encodings!r:.60}: expected encodings, as of tokenizer.encode_batch")
    encodings = encodings if isinstance(encodings, Encodings) else list(encodings)
    if not len(encodings):
        raise UsageError("cannot make a batch without encodings: expected at least one")
    if isinstance(encodings, Encodings):
        input_ids, token_type_ids, seqlens = encodings.input_ids, encodings.token_type_ids, encodings.seqlens
    else:
        for encoding in encodings:
            if not hasattr(encoding, "input_ids"):
                raise UsageError(
                    f"collate got {type(encoding).__name__} ({encoding!r:.60}) in the list: expected encodings, as of "
                    "tokenizer.encode"
                )
        input_ids = np.concatenate([encoding.input_ids for encoding in encodings])
        token_type_ids = np.concatenate([encoding.token_type_ids for encoding in encodings])
        seqlens = np.array([len(encoding) for encoding in encodings])
    batch = packed(input_ids, token_type_ids, seqlens)
    return batch if in_arrays else batch.as_tensors()


def batch_of_ids(rows: Sequence[np.ndarray]) -> Batch:
    """Pack sequences of token ids, (n,) each, at least one; every token has type 0."""
    input_ids = np.concatenate(rows)
    return packed(input_ids, np.zeros_like(input_ids), np.array([len(row) for row in rows])).as_tensors()


def packed(input_ids: np.ndarray, token_type_ids: np.ndarray, seqlens: np.ndarray) -> Batch:
    """A batch in arrays of B sequences that are packed already.

    Args:
        input_ids, token_type_ids: (total_tokens,).
        seqlens: (B,) number of tokens of each, at least one sequence.
    """
    cu_seqlens = np.zeros(len(seqlens) + 1, np.int32)
    np.cumsum(seqlens, out=cu_seqlens[1:])
    position_ids = np.arange(cu_seqlens[-1], dtype=np.int64) - np.repeat(cu_seqlens[:-1], seqlens)
    max_seqlen = int(seqlens.max())
    arrays: Any = input_ids.astype(np.int64), token_type_ids.astype(np.int64), position_ids, cu_seqlens
    return Batch(*arrays, max_seqlen=max_seqlen, num_positions=max_seqlen)
