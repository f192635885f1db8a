"""State of a decoder between the steps of generation.

Shape letters: R rows.
"""

from collections.abc import Sequence

import numpy as np

from bertkit.later import Tensor
from bertkit.transformer.kernels.key_value_cache import KeyValueCache
from bertkit.transformer.prepared.layer import Attention, PreparedLayer


class DecodingCache(Attention):
    """Keys and values of rows and of their sources.

    Args:
        num_rows: R, rows without tokens.
        own: an empty cache of the rows.
        sources: the filled cache of the sources; None for a model without sources.
        source_lengths: (num_sources,) number of tokens of each source.
        source_rows: (R,) index of the source of each row.
    """

    def __init__(
        self,
        num_rows: int,
        own: KeyValueCache,
        sources: KeyValueCache | None = None,
        source_lengths: Sequence[int] = (),
        source_rows: Sequence[int] = (),
    ) -> None:
        self.lengths = np.zeros(num_rows, np.int64)  # number of tokens of each row
        self.own, self.sources = own, sources
        self.source_lengths, self.source_rows = np.array(source_lengths, np.int64), np.array(source_rows, np.int64)

    def begin(self, num_new: np.ndarray) -> None:
        """Begin a step with (R,) int64 numbers of new tokens, which every layer then appends and attends from."""
        cu_new = np.concatenate([[0], np.cumsum(num_new)])
        self.own.begin_append(cu_new, self.lengths)
        self.own.begin_attend(cu_new, self.lengths, np.arange(len(num_new)), True)
        if self.sources is not None:
            self.sources.begin_attend(cu_new, self.source_lengths[self.source_rows], self.source_rows, False)
        self.lengths = self.lengths + num_new

    def attend(self, number: int, layer: PreparedLayer, query_key_value: Tensor) -> Tensor:
        """As `Attention.attend`, from new tokens to themselves and to those of the cache."""
        self.own.append(number, query_key_value, query_key_value.shape[1] // 3)
        return self.own.attend(number, query_key_value)

    def attend_sources(self, number: int, queries: Tensor) -> Tensor:
        assert self.sources is not None
        return self.sources.attend(number, queries)

    def take(self, rows: np.ndarray) -> None:
        """Keep the (n,) int64 rows, in that order; rows may repeat."""
        if len(rows) == len(self.lengths) and (rows == np.arange(len(rows))).all():
            return
        self.lengths = self.lengths[rows]
        if self.sources is not None:
            self.source_rows = self.source_rows[rows]
        self.own.take(rows)
