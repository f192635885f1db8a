"""Losses of the vectors of a whole batch. Shape letters: S sequences, B instances, D documents, E width.

An instance is a query with one of its positives; without several positives a row is an instance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.tasks.cross_encoder.losses import lists, margins
from bertkit.tasks.similarity.rows import Masked, Roles


@dataclass(frozen=True)
class LossOptions:
    """What the losses are computed with."""

    temperature: float = 0.05
    margin: float = 0.5
    directions: str = "query-to-document"  # a name from DIRECTIONS


class BatchLoss(NamedTuple):
    """The loss of a batch, and counts for its metrics."""

    value: Tensor  # scalar
    num_masked: float = 0.0  # comparisons left out because the texts belong together
    num_right: float = 0.0  # instances whose positive is nearer than every other document


DIRECTIONS = ("query-to-document", "both", "all")
"""What a positive competes with: the other documents of the batch; these, and in a second term the other queries
(Günther et al. 2023); all other documents and queries of the batch in one sum, queries against queries and documents
against documents too (Li et al. 2023)."""


def in_batch(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Cross-entropy of each positive among all documents of the batch, by cosines over a temperature (van den Oord et
    al. 2018; Henderson et al. 2017): the other rows' documents are its negatives, as are the negatives of its row."""
    unit = F.normalize(vectors, dim=-1)
    queries, positives, documents = unit[roles.queries], unit[roles.positives], unit[roles.documents]
    own = (roles.positives[:, None] == roles.documents).nonzero()[:, 1]  # (B,) columns of the positives
    masked = Masked.of(roles)
    scores = _masked(queries @ documents.T / options.temperature, masked.documents)  # (B, D)
    positive = scores.gather(1, own[:, None]).squeeze(1)
    right = (scores.detach().argmax(dim=1) == own).sum()
    num_masked = float(masked.documents.sum())
    if options.directions == "query-to-document":
        return BatchLoss((scores.logsumexp(dim=1) - positive).mean(), num_masked, float(right))
    to_queries = _masked(positives @ queries.T / options.temperature, masked.positives_to_queries)  # (B, B)
    num_masked += float(masked.positives_to_queries.sum())
    if options.directions == "both":
        normalizer = (scores.logsumexp(dim=1) + to_queries.logsumexp(dim=1)) / 2
        return BatchLoss((normalizer - positive).mean(), num_masked, float(right))
    itself = roles.queries[:, None] == roles.queries
    same_row = roles.rows[roles.positives][:, None] == roles.rows[roles.documents]
    query_pairs = _masked(queries @ queries.T / options.temperature, masked.queries | itself)
    document_pairs = _masked(positives @ documents.T / options.temperature, masked.positives_to_documents | same_row)
    num_masked += float(masked.queries.sum() + (masked.positives_to_documents & ~same_row).sum())
    together = torch.cat([scores, query_pairs, to_queries, document_pairs], dim=1)
    return BatchLoss((together.logsumexp(dim=1) - positive).mean(), num_masked, float(right))


def cosent(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Of every two pairs with different scores, the cosine of the one with the higher score should be higher (Su 2022;
    Huang et al. 2024, "CoSENT"): log(1 + sum of exp((cosine of the lower - cosine of the higher) / temperature))."""
    scores = _cosines(vectors, roles) / options.temperature
    is_lower = roles.scores[:, None] < roles.scores  # (B, B)
    differences = (scores[:, None] - scores)[is_lower]
    return BatchLoss(torch.cat([differences, differences.new_zeros(1)]).logsumexp(dim=0))


def cosine(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Squared difference of cosine and score, the mean over pairs (Reimers & Gurevych 2019, section 3)."""
    return BatchLoss((_cosines(vectors, roles) - roles.scores).square().mean())


def contrastive(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Of pairs with scores 1 and 0: squared cosine distance of the 1s, and squared shortfall of the 0s from a margin
    (Hadsell et al. 2006), summed over the hard pairs: 1s farther than the nearest 0, 0s nearer than the farthest 1."""
    distances = 1 - _cosines(vectors, roles)
    ones, zeros = distances[roles.scores == 1], distances[roles.scores == 0]
    hard_ones = ones[ones > (zeros.min() if len(zeros) else ones.mean())]
    hard_zeros = zeros[zeros < (ones.max() if len(ones) else zeros.mean())]
    return BatchLoss(hard_ones.square().sum() + F.relu(options.margin - hard_zeros).square().sum())


def triplet(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Euclidean distance to the positive less that to the negative plus a margin, at least 0, the mean over triplets
    (Reimers & Gurevych 2019, section 3)."""
    query, positive, negative = (vectors[indices] for indices in roles.triplets())
    nearer, farther = _distances(query, positive), _distances(query, negative)
    return BatchLoss(F.relu(nearer - farther + options.margin).mean())


def margin(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Squared difference of the margins between the first text of a row and each other text, of inner products and of a
    teacher's scores (Hofstätter et al. 2020, "MarginMSE")."""
    return BatchLoss(margins(_products(vectors, roles), roles.document_scores, roles.rows[roles.documents]))


def divergence(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Kullback-Leibler divergence, nats, of the texts of a row by inner products from these by the scores of a teacher,
    both over a temperature; the mean over rows, times the squared temperature (Lin et al. 2020)."""
    rows = lists(_products(vectors, roles), roles.document_scores, roles.rows[roles.documents])
    parts = [
        F.kl_div(
            (scores / options.temperature).log_softmax(0), (targets / options.temperature).log_softmax(0),
            reduction="sum", log_target=True,
        )
        for scores, targets in rows
    ]  # fmt: skip
    return BatchLoss(torch.stack(parts).mean() * options.temperature**2)


OBJECTIVES: Mapping[str, Callable[[Tensor, Roles, LossOptions], BatchLoss]] = {
    "in-batch": in_batch,
    "triplet": triplet,
    "cosent": cosent,
    "cosine": cosine,
    "contrastive": contrastive,
    "margin": margin,
    "divergence": divergence,
}


def loss_of(
    objective: str, vectors: Tensor, roles: Roles, options: LossOptions, dimensions: tuple[int, ...]
) -> BatchLoss:
    """The loss of (S, E) vectors; with ``dimensions`` the sum over vectors cut to each of them and scaled to length 1
    (Kusupati et al. 2022)."""
    loss = OBJECTIVES[objective]
    if not dimensions:
        return loss(vectors, roles, options)
    parts = [loss(F.normalize(vectors[:, :width], dim=-1), roles, options) for width in dimensions]
    total = torch.stack([part.value for part in parts]).sum()
    return BatchLoss(total, parts[0].num_masked, parts[0].num_right)


def _cosines(vectors: Tensor, roles: Roles) -> Tensor:
    """(B,)"""
    unit = F.normalize(vectors, dim=-1)
    return (unit[roles.queries] * unit[roles.positives]).sum(dim=-1)


def _products(vectors: Tensor, roles: Roles) -> Tensor:
    """(D,) inner products of documents with their queries."""
    return (vectors[roles.document_queries] * vectors[roles.documents]).sum(dim=-1)


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """(N,) Euclidean, with a gradient of 0 where two vectors are the same."""
    squares = (a - b).square().sum(dim=-1)
    return torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, float("-inf"))
