"""Rows of texts for a sentence encoder, and batches of whole rows.

The labels of each sequence of a batch are its row, its role (query, positive or negative), the id of its text, the
score of its row, and those known positives of its query that also are in rows of other queries or among negatives.
Texts with equal token ids have the same id, so duplicates and known positives need no comparison of vectors; so has the
same text with different prompts as a query and as a document. Shape letters: S sequences, K maximum number of known
positives of a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bertkit.batch import LabeledEncodings
from bertkit.later import F, torch
from bertkit.tasks.examples import NEGATIVE, POSITIVE, QUERY, TextSet
from bertkit.tokenizer import Encodings

if TYPE_CHECKING:
    from torch import Tensor

_ROW, _ROLE, _TEXT, _SCORE, DATASET, _WIDTH = range(6)  # columns of labels; then G of a guide, known positives
_NONE = -1  # no further known positive


def labeled_rows(rows: Sequence[TextSet], encodings: Encodings) -> LabeledEncodings:
    """The encodings of all texts of the rows with (S, 6 + G + K) float64 labels; data sets are numbered from 0."""
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
    known = np.full((len(counts), counts.max()), _NONE, np.float64)
    starts = np.cumsum(counts) - counts
    known[pairs[:, 0], np.arange(len(pairs)) - starts[pairs[:, 0]]] = pairs[:, 1]
    scores = np.concatenate([_scores(row) for row in rows])
    _, datasets = np.unique([row.dataset for row in rows], return_inverse=True)
    guides = [np.empty((len(row.texts), 0)) if row.guide is None else row.guide for row in rows]
    width = np.full(len(roles), guides[0].shape[1])
    labels = np.concatenate(
        [
            np.stack([row_of, roles, text_ids, scores, datasets[row_of], width], axis=1),
            np.concatenate(guides),
            known[text_ids[queries][row_of]],
        ],
        axis=1,
    )
    return LabeledEncodings(encodings, labels, with_vectors=True)


def _scores(row: TextSet) -> list[float]:
    """Score of each text of a row including the query, NaN without one."""
    if row.scores:
        return [math.nan, *row.scores]
    return [math.nan if row.score is None else row.score] * len(row.texts)


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
    scores: Tensor  # (B,) float32 of the instances
    queries: Tensor  # (B,) indices of the instances' queries
    positives: Tensor  # (B,) and of their positives
    documents: Tensor  # (D,) indices of all positives and negatives
    document_queries: Tensor  # (D,) and of their queries
    document_scores: Tensor  # (D,) float32
    dataset: int  # of the batch
    guide: Tensor | None  # (S, G) float32 vectors of length 1 of a guide model

    @classmethod
    def of(cls, labels: Tensor) -> Roles:
        """Decode (S, 6 + G + K) labels: rows in any order, the sequences of a row adjacent."""
        numbers = labels.nan_to_num().long()
        rows, roles = numbers[:, _ROW], numbers[:, _ROLE]
        starts = (roles == QUERY).nonzero().squeeze(1)
        query_of = starts[(roles == QUERY).cumsum(0) - 1]  # (S,)
        positives, documents = ((chosen).nonzero().squeeze(1) for chosen in (roles == POSITIVE, roles != QUERY))
        scores, width = labels[:, _SCORE].float(), int(numbers[0, _WIDTH])
        known = _WIDTH + 1 + width
        guide = F.normalize(labels[:, _WIDTH + 1 : known].float(), dim=-1) if width else None
        return cls(
            rows, roles, numbers[:, _TEXT], numbers[:, known:], scores[positives], query_of[positives], positives,
            documents, query_of[documents], scores[documents], int(numbers[0, DATASET]), guide,
        )  # fmt: skip

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        """Indices of query, positive and negative for each pair of an instance and a negative of its row."""
        negatives = (self.roles == NEGATIVE).nonzero().squeeze(1)
        same = self.rows[self.positives][:, None] == self.rows[negatives]  # (B, negatives)
        instance, negative = same.nonzero(as_tuple=True)
        return self.queries[instance], self.positives[instance], negatives[negative]


@dataclass(frozen=True)
class Masked:
    """Comparisons to mask because the texts belong together."""

    documents: Tensor  # (B, D) of an instance's query with each document
    queries: Tensor  # (B, B) of an instance's query with the query of each instance
    positives_to_queries: Tensor  # (B, B) of an instance's positive with the query of each instance
    positives_to_documents: Tensor  # (B, D) of an instance's positive with each document

    @classmethod
    def of(cls, roles: Roles) -> Masked:
        """Mask equal texts, and texts known to belong together."""
        own = roles.positives[:, None] == roles.documents  # (B, D) the positive itself, which is not masked
        query_texts, document_texts = roles.texts[roles.queries], roles.texts[roles.documents]
        positive_texts, known = roles.texts[roles.positives], roles.known[roles.queries]
        same_rows = query_texts[:, None] == roles.texts[roles.document_queries]  # (B, D)
        in_own_rows = same_rows & (roles.roles[roles.documents] == POSITIVE)
        belongs = in_own_rows | _among(document_texts, known)  # (B, D) a known positive of the instance's query
        documents = (belongs | (query_texts[:, None] == document_texts)) & ~own
        asks = _among(positive_texts, known)  # (B, B) [i, j]: the positive of j belongs to the other query of i
        same_query = query_texts[:, None] == query_texts
        is_self = roles.queries[:, None] == roles.queries
        return cls(
            documents,
            (same_query | asks | asks.T) & ~is_self,
            (same_query | asks.T) & ~_diagonal(same_query),
            belongs | (positive_texts[:, None] == document_texts),
        )._guided(roles, own)

    def _guided(self, roles: Roles, own: Tensor) -> Masked:
        """Also mask texts that are nearer than the query and positive of the instance by a guide model (Solatorio 2024,
        "GISTEmbed")."""
        if roles.guide is None:
            return self
        queries, positives, documents = (
            roles.guide[each] for each in (roles.queries, roles.positives, roles.documents)
        )
        nearest = (queries * positives).sum(dim=-1, keepdim=True)  # (B, 1)
        is_self = roles.queries[:, None] == roles.queries
        return Masked(
            self.documents | ((queries @ documents.T > nearest) & ~own),
            self.queries | ((queries @ queries.T > nearest) & ~is_self),
            self.positives_to_queries | ((positives @ queries.T > nearest) & ~is_self),
            self.positives_to_documents | (positives @ documents.T > nearest),
        )


def _among(texts: Tensor, known: Tensor) -> Tensor:
    """(B, D) bool, True for (D,) texts that are among the (B, K) known ones."""
    results = torch.zeros(len(known), len(texts), dtype=torch.bool, device=texts.device)
    for column in known.unbind(dim=1):
        results |= column[:, None] == texts
    return results


def _diagonal(square: Tensor) -> Tensor:
    """The diagonal of a (B, B) bool tensor."""
    return square.new_ones(len(square)).diag()
