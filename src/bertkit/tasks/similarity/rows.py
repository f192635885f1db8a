"""Rows of texts for a sentence encoder, and batches of whole rows.

The labels of a batch say of each sequence which row it is from, whether it is the query, a positive or a negative of
it, which text it is, the score of its row, and for a query which texts are known to be its positives. Texts are the
same if their token ids are; so equal texts and several positives are known without comparing vectors. Shape letters:
S sequences, K the most positives that a query has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from torch import Tensor

from bertkit.batch import LabeledBatch, LabeledEncodings
from bertkit.errors import UsageError
from bertkit.randomness import in_random_order
from bertkit.tasks.examples import NEGATIVE, POSITIVE, QUERY, TextSet
from bertkit.tasks.feed import LabeledFeed
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.ragged import ranges

_ROW, _ROLE, _TEXT, _SCORE, _KNOWN = range(5)  # columns of labels; the last one begins the known positives
_NONE = -1  # no further known positive


def labeled_rows(rows: Sequence[TextSet], encodings: Encodings) -> LabeledEncodings:
    """The encodings of all texts of the rows with (S, 4 + K) float64 labels."""
    roles = np.concatenate([row.roles for row in rows])
    row_of = encodings.text_index
    text_ids = _text_ids(encodings)
    queries = np.flatnonzero(roles == QUERY)
    pairs = np.unique(np.stack([text_ids[queries][row_of], text_ids], axis=1)[roles == POSITIVE], axis=0)
    counts = np.bincount(pairs[:, 0], minlength=text_ids.max() + 1)
    known = np.full((len(counts), counts.max()), _NONE, np.float64)
    starts = np.cumsum(counts) - counts
    known[pairs[:, 0], np.arange(len(pairs)) - starts[pairs[:, 0]]] = pairs[:, 1]
    scores = np.array([np.nan if row.score is None else row.score for row in rows])
    labels = np.concatenate(
        [np.stack([row_of, roles, text_ids, scores[row_of]], axis=1), known[text_ids[queries][row_of]]], axis=1
    )
    return LabeledEncodings(encodings, labels, with_vectors=True)


def _text_ids(encodings: Encodings) -> np.ndarray:
    """(S,) int64: the same number for sequences of the same token ids, and no others."""
    numbers: dict[bytes, int] = {}
    ids, bounds = np.ascontiguousarray(encodings.input_ids), encodings.cu_seqlens.tolist()
    return np.array(
        [numbers.setdefault(ids[start:end].tobytes(), len(numbers)) for start, end in pairwise(bounds)],
        np.int64,
    )


@dataclass(frozen=True)
class RowFeed(LabeledFeed):
    """Every row once in an epoch, as `LabeledFeed`; ``batch_size`` counts rows."""

    @cached_property
    def _bounds(self) -> np.ndarray:
        """(R + 1,) where the sequences of each row begin."""
        starts = np.flatnonzero(self.data.labels[:, _ROLE] == QUERY)
        return np.append(starts, len(self.data.labels))

    @property
    def _num_rows(self) -> int:
        return len(self._bounds) - 1

    @property
    def batches_per_epoch(self) -> int:
        """The last one may be smaller, but is never a single row, which nothing can be compared with."""
        full, rest = divmod(self._num_rows, self.batch_size)
        return full + (rest > 1) or 1

    def batch(self, position: int, progress: float) -> LabeledBatch:
        """As `LabeledFeed.batch`."""
        epoch, number = divmod(position, self.batches_per_epoch)
        start, end = number * self.batch_size, (number + 1) * self.batch_size
        if number == self.batches_per_epoch - 1:
            end = self._num_rows
        rows = self._share(in_random_order(np.arange(start, end), self._num_rows, self.seed, epoch))
        starts = self._bounds[rows]
        return self.data.take(ranges(starts, self._bounds[rows + 1] - starts))


@dataclass(frozen=True)
class Roles:
    """What the labels of a whole batch say. B instances: pairs of a query and one of its positives."""

    rows: Tensor  # (S,) int64
    roles: Tensor  # (S,) int64
    texts: Tensor  # (S,) int64
    known: Tensor  # (S, K) int64 known positives of the sequence's query, -1 where there are no more
    scores: Tensor  # (B,) float32 of the instances
    queries: Tensor  # (B,) indices of the instances' queries
    positives: Tensor  # (B,) and of their positives
    documents: Tensor  # (D,) indices of all positives and negatives

    @classmethod
    def of(cls, labels: Tensor) -> "Roles":
        """Of (S, 4 + K) labels, rows in any order, the sequences of a row next to each other."""
        numbers = labels.nan_to_num().long()
        rows, roles = numbers[:, _ROW], numbers[:, _ROLE]
        starts = (roles == QUERY).nonzero().squeeze(1)
        query_of = starts[(roles == QUERY).cumsum(0) - 1]  # (S,)
        positives = (roles == POSITIVE).nonzero().squeeze(1)
        return cls(
            rows, roles, numbers[:, _TEXT], numbers[:, _KNOWN:], labels[positives, _SCORE].float(),
            query_of[positives], positives, (roles != QUERY).nonzero().squeeze(1),
        )  # fmt: skip

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        """Indices of query, positive and negative for each pair of an instance and a negative of its row."""
        negatives = (self.roles == NEGATIVE).nonzero().squeeze(1)
        same = self.rows[self.positives][:, None] == self.rows[negatives]  # (B, negatives)
        instance, negative = same.nonzero(as_tuple=True)
        return self.queries[instance], self.positives[instance], negatives[negative]


def check_rows(rows: Sequence[TextSet]) -> None:
    """Check that no text is both a positive and a negative of the same query.

    Raises:
        DataError: one is, in one row or in two.
        UsageError: rows of different kinds: with and without scores.
    """
    positives: dict[tuple[str, str], TextSet] = {}
    scored = [row for row in rows if row.score is not None]
    if scored and len(scored) < len(rows):
        raise UsageError("some rows have a score and others have none: give every row one, or none")
    for row in rows:
        if row.score is None:
            positives |= {(row.query, text): row for text in row.positives}
    for row in rows:
        for text in row.negatives:
            if (row.query, text) in positives:
                other = positives[row.query, text].place
                raise row.error(f"{text[:60]!r} is a negative here and a positive of the same text in {other or 'it'}")


@dataclass(frozen=True)
class Masked:
    """Which comparisons would hold a text against its own positives."""

    documents: Tensor  # (B, D) of an instance's query with each document
    queries: Tensor  # (B, B) of an instance's query with the query of each instance
    positives_to_queries: Tensor  # (B, B) of an instance's positive with the query of each instance
    positives_to_documents: Tensor  # (B, D) of an instance's positive with each document

    @classmethod
    def of(cls, roles: Roles) -> "Masked":
        """By the numbers of the texts: equal texts, and texts known to belong together."""
        own = roles.positives[:, None] == roles.documents  # (B, D) the positive itself, which stays
        query_texts, document_texts = roles.texts[roles.queries], roles.texts[roles.documents]
        positive_texts, known = roles.texts[roles.positives], roles.known[roles.queries]
        belongs = _among(document_texts, known)  # (B, D) a known positive of the instance's query
        documents = (belongs | (query_texts[:, None] == document_texts)) & ~own
        asks = _among(positive_texts, known)  # (B, B) [i, j]: the positive of j belongs to the query of i
        same_query = query_texts[:, None] == query_texts
        is_self = roles.queries[:, None] == roles.queries
        return cls(
            documents,
            (same_query | asks | asks.T) & ~is_self,
            (same_query | asks.T) & ~_diagonal(same_query),
            belongs | (positive_texts[:, None] == document_texts),
        )


def _among(texts: Tensor, known: Tensor) -> Tensor:
    """(B, D): which of (D,) texts are among the (B, K) known ones."""
    results = known[:, :1] == texts
    for column in known.unbind(dim=1)[1:]:
        results |= column[:, None] == texts
    return results


def _diagonal(square: Tensor) -> Tensor:
    """The diagonal of a (B, B) bool tensor."""
    return square.new_ones(len(square)).diag()
