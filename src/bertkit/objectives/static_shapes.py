"""Pre-training batches in parts of one shape, so that a compiled network is compiled once.

A part ends with filler: sequences of [PAD] that predict nothing. Its empty sequences come first, where the position of
their first token exists.
"""

import math
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from bertkit.batch import IGNORED, Batch
from bertkit.later import F, torch
from bertkit.objectives.loader import PretrainingBatch


class StaticShape(NamedTuple):
    """The shape of a part."""

    num_tokens: int
    num_sequences: int  # filler and empty sequences included
    num_masked: int  # predicted positions, unused ones included
    max_seqlen: int

    @classmethod
    def of(cls, batch_size: int, max_seqlen: int, mask_rate: float, most_tokens: int) -> "StaticShape":
        """The shape for batches of up to ``batch_size`` sequences, with room for at least one of the longest.

        Args:
            mask_rate: the highest of the run.
            most_tokens: maximum number of tokens of a part.

        >>> StaticShape.of(4, 128, 0.15, 8_192), StaticShape.of(256, 128, 0.15, 8_192).num_masked
        (StaticShape(num_tokens=512, num_sequences=8, num_masked=80, max_seqlen=128), 1264)
        """
        num_tokens = max(max_seqlen, min(most_tokens, batch_size * max_seqlen))
        num_longest = -(-num_tokens // max_seqlen)
        most_masked = math.ceil(mask_rate * num_tokens + num_longest / 2) + 1  # each sequence rounds its number
        return cls(num_tokens, batch_size + num_longest, -(-most_masked // 8) * 8, max_seqlen)


@dataclass(frozen=True, eq=False)
class StaticBatch(PretrainingBatch):
    """A batch whose parts have one shape."""

    shape: StaticShape = field(kw_only=True)

    @classmethod
    def of(cls, batch: PretrainingBatch, shape: StaticShape) -> "StaticBatch":
        """The same batch."""
        values = {part.name: getattr(batch, part.name) for part in fields(PretrainingBatch)}
        return cls(**values, shape=shape)

    def split(self, num_parts: int, most_tokens: float = math.inf) -> list[PretrainingBatch]:
        """Split into the fewest parts of neighboring sequences with the static shape; the arguments are ignored."""
        cu_tokens = self.batch.cu_seqlens.numpy()
        cu_masked = np.searchsorted(self.masked_positions.numpy(), cu_tokens)
        parts, start = [], 0
        while start < len(self):
            limits = ((cu_tokens, self.shape.num_tokens), (cu_masked, self.shape.num_masked))
            end = min(int(np.searchsorted(cu, cu[start] + most, "right")) - 1 for cu, most in limits)
            parts.append(filled_up(self._between(start, end), self.shape))
            start = end
        return parts


def filled_up(part: PretrainingBatch, shape: StaticShape) -> PretrainingBatch:
    """The part with filler up to a shape."""
    batch, longest = part.batch, shape.max_seqlen
    missing = shape.num_tokens - part.num_tokens
    fillers = torch.arange(part.num_tokens, shape.num_tokens, longest, dtype=torch.int32)
    num_empty = shape.num_sequences - len(part) - len(fillers)
    unused = shape.num_masked - len(part.labels)
    label = part.next_sentence_label
    return PretrainingBatch(
        Batch(
            input_ids=F.pad(batch.input_ids, (0, missing)),
            token_type_ids=F.pad(batch.token_type_ids, (0, missing)),
            position_ids=torch.cat([batch.position_ids, torch.arange(missing) % longest]),
            cu_seqlens=torch.cat([
                torch.zeros(num_empty, dtype=torch.int32), batch.cu_seqlens[:-1], fillers,
                torch.tensor([shape.num_tokens], dtype=torch.int32),
            ]),
            max_seqlen=longest,
            num_positions=longest,
        ),
        F.pad(part.masked_positions, (0, unused)),
        F.pad(part.labels, (0, unused), value=IGNORED),
        None if label is None else F.pad(label, (num_empty, len(fillers)), value=IGNORED),
        None if part.draws is None else F.pad(part.draws, (0, unused)),
    )  # fmt: skip
