"""Encodings to one packed Batch."""

from collections.abc import Sequence

import numpy as np
import torch

from bertkit.batch.batch import Batch
from bertkit.errors import UsageError
from bertkit.tokenizer import Encoding


def collate(encodings: Sequence[Encoding]) -> Batch:
    """Lay Encodings end to end, in their order.

    Raises:
        UsageError: there are none.
    """
    if not encodings:
        raise UsageError("cannot make a batch of no encodings")
    seqlens = np.array([len(encoding) for encoding in encodings])
    cu_seqlens = np.zeros(len(seqlens) + 1, np.int32)
    np.cumsum(seqlens, out=cu_seqlens[1:])
    position_ids = np.arange(cu_seqlens[-1]) - np.repeat(cu_seqlens[:-1], seqlens)
    max_seqlen = int(seqlens.max())
    return Batch(
        input_ids=torch.from_numpy(np.concatenate([e.input_ids for e in encodings]).astype(np.int64)),
        token_type_ids=torch.from_numpy(np.concatenate([e.token_type_ids for e in encodings]).astype(np.int64)),
        position_ids=torch.from_numpy(position_ids.astype(np.int64)),
        cu_seqlens=torch.from_numpy(cu_seqlens),
        max_seqlen=max_seqlen,
        num_positions=max_seqlen,
        encodings=encodings,
    )
