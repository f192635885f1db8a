"""Rows of texts for a sentence encoder, and batches of whole rows.

The labels of each sequence of a batch are its row, its role (query, positive or negative), the id of its text, the
score of its row, its data set, and those known positives of its query that also are in rows of other queries or among
negatives.
Texts with equal token ids have the same id, so duplicates and known positives need no comparison of vectors; so has the
same text with different prompts as a query and as a document. Shape letters: S sequences, G width of the vectors of a
guide, K maximum number of known positives of a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bertkit.batch import LabelColumns, LabeledEncodings
from bertkit.later import F
from bertkit.tasks.examples import NEGATIVE, POSITIVE, QUERY, TextSet
from bertkit.tokenizer import Encodings

if TYPE_CHECKING:
    from torch import Tensor

_NONE = -1  # no further known positive


def labeled_rows(rows: Sequence[TextSet], encodings: Encodings) -> LabeledEncodings:
    """The encodings of all texts of the rows with their labels; data sets are numbered from 0."""
    roles = np.concatenate([row.roles for row in rows])
    row_of = encodings.text_index
    text_ids = _text_ids(rows, encodings)
    queries = np.flatnonzero(roles == QUERY)
    pairs, in_own_rows = np.unique(
        np.stack([text_ids[queries][row_of], text_ids], axis=1)[roles == POSITIVE], axis=0, return_counts=True
    )
    in_rows = np.bincount(text_ids[roles != QUERY], minlength=text_ids.max() + 1)
    pairs = pairs[in_rows[pairs[:, 1]] > in_own_rows]  # a query with thousands of positives would have them all
    counts = np.bincount(pairs[:, 0], minlength=text_ids.max() + 1)
    known = np.full((len(counts), counts.max()), _NONE, np.int64)
    starts = np.cumsum(counts) - counts
    known[pairs[:, 0], np.arange(len(pairs)) - starts[pairs[:, 0]]] = pairs[:, 1]
    scores = np.concatenate([(math.nan, *row.targets) for row in rows])  # NaN for the query
    _, datasets = np.unique([row.dataset for row in rows], return_inverse=True)
    guides = [np.empty((len(row.texts), 0), np.float32) if row.guide is None else row.guide for row in rows]
    labels = LabelColumns(
        row=row_of.astype(np.int64), role=roles, text=text_ids, score=scores, dataset=datasets[row_of],
        guide=np.concatenate(guides), known=known[text_ids[queries][row_of]],
    )  # fmt: skip
    return LabeledEncodings(encodings, labels, with_vectors=True)


def _text_ids(rows: Sequence[TextSet], encodings: Encodings) -> np.ndarray:
    """(S,) int64 text ids: equal for sequences with equal token ids or of the same text, directly or through others."""
    numbers: dict[bytes | str, int] = {}
    parents: list[int] = []  # the smallest number has itself
    ids, bounds = np.ascontiguousarray(encodings.input_ids), encodings.cu_seqlens.tolist()
    texts = (text for row in rows for text in row.texts)
    results = []
    for text, (start, end) in zip(texts, pairwise(bounds), strict=True):
        tokens = ids[start:end].tobytes()
        known = {_root(parents, numbers[key]) for key in (tokens, text) if key in numbers}
        number = min(known, default=len(parents))
        if not known:
            parents.append(number)
        for other in known:
            parents[other] = number
        numbers[tokens] = numbers[text] = number
        results.append(number)
    return np.array([_root(parents, number) for number in results], np.int64)


def _root(parents: list[int], number: int) -> int:
    while parents[number] != number:
        number = parents[number]
    return number


@dataclass(frozen=True)
class Roles:
    """The labels of a whole batch, decoded. B instances: pairs of a query and one of its positives."""

    rows: Tensor  # (S,) int64
    roles: Tensor  # (S,) int64
    texts: Tensor  # (S,) int64
    known: Tensor  # (S, K) int64 known positives of the sequence's query that are in other rows, padded with -1
    queries: Tensor  # (B,) indices of the instances' queries
    positives: Tensor  # (B,) and of their positives
    documents: Tensor  # (D,) indices of all positives and negatives
    document_queries: Tensor  # (D,) and of their queries
    document_scores: Tensor  # (D,) float32
    dataset: int  # of the batch
    guide: Tensor | None  # (S, G) float32 vectors of length 1 of a guide model

    @classmethod
    def of(cls, labels: LabelColumns) -> Roles:
        """The roles of labels: rows in any order, the sequences of a row adjacent."""
        roles = labels.role
        starts = (roles == QUERY).nonzero().squeeze(1)
        query_of = starts[(roles == QUERY).cumsum(0) - 1]  # (S,)
        positives, documents = ((chosen).nonzero().squeeze(1) for chosen in (roles == POSITIVE, roles != QUERY))
        guide = F.normalize(labels.guide.float(), dim=-1) if labels.guide.shape[1] else None
        return cls(
            labels.row, roles, labels.text, labels.known, query_of[positives], positives, documents,
            query_of[documents], labels.score[documents].float(), int(labels.dataset[0]), guide,
        )  # fmt: skip

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        """Indices of query, positive and negative for each pair of an instance and a negative of its row."""
        negatives = (self.roles == NEGATIVE).nonzero().squeeze(1)
        same = self.rows[self.positives][:, None] == self.rows[negatives]  # (B, negatives)
        instance, negative = same.nonzero(as_tuple=True)
        return self.queries[instance], self.positives[instance], negatives[negative]
