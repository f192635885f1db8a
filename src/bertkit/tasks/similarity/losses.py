"""Losses of sentence vectors of a whole batch. Shape letters: S sequences, B instances, D documents, E width.

An instance is a query with one of its positives; without several positives a row is an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bertkit.later import F, torch
from bertkit.tasks.cross_encoder.losses import lists, margins
from bertkit.tasks.similarity.rows import Masked, Roles

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LossOptions:
    """Parameters of the losses."""

    temperature: float = 0.05
    margin: float = 0.5
    directions: str = "query-to-document"  # a name from DIRECTIONS


class BatchLoss(NamedTuple):
    """The loss of a batch, and counts for its metrics."""

    value: Tensor  # scalar
    num_masked: float = 0.0  # comparisons masked because the texts belong together
    num_right: float = 0.0  # number of instances whose positive is nearest


DIRECTIONS = ("query-to-document", "both", "all")
"""Candidates that a positive competes with: the other documents of the batch; these, and in a second term the other
queries (Günther et al. 2023); all other documents and queries of the batch in one sum, queries against queries and
documents against documents too (Li et al. 2023)."""


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
    """CoSENT (Su 2022; Huang et al. 2024): for every two pairs with different scores, the one with the higher score
    should have the higher cosine: log(1 + sum of exp((cosine of the lower - cosine of the higher) / temperature))."""
    scores = _cosines(vectors, roles) / options.temperature
    is_lower = roles.scores[:, None] < roles.scores  # (B, B)
    differences = (scores[:, None] - scores)[is_lower]
    return BatchLoss(torch.cat([differences, differences.new_zeros(1)]).logsumexp(dim=0))


def cosine(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Squared difference of cosine and score, averaged over pairs (Reimers & Gurevych 2019, section 3)."""
    return BatchLoss((_cosines(vectors, roles) - roles.scores).square().mean())


def contrastive(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Contrastive loss (Hadsell et al. 2006): squared cosine distance of pairs with score 1, squared shortfall from a
    margin for 0, summed over the hard pairs: 1s farther than the nearest 0, 0s nearer than the farthest 1."""
    distances = 1 - _cosines(vectors, roles)
    ones, zeros = distances[roles.scores == 1], distances[roles.scores == 0]
    hard_ones = ones[ones > (zeros.min() if len(zeros) else ones.mean())]
    hard_zeros = zeros[zeros < (ones.max() if len(ones) else zeros.mean())]
    return BatchLoss(hard_ones.square().sum() + F.relu(options.margin - hard_zeros).square().sum())


def triplet(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Triplet loss: Euclidean distance to the positive - distance to the negative + margin, at least 0, averaged over
    triplets (Reimers & Gurevych 2019, section 3)."""
    query, positive, negative = (vectors[indices] for indices in roles.triplets())
    nearer, farther = _distances(query, positive), _distances(query, negative)
    return BatchLoss(F.relu(nearer - farther + options.margin).mean())


def margin(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """MarginMSE (Hofstätter et al. 2020): squared difference between the margins of inner products and of teacher
    scores, for the first text of a row and each other text."""
    return BatchLoss(margins(_products(vectors, roles), roles.document_scores, roles.rows[roles.documents]))


def divergence(vectors: Tensor, roles: Roles, options: LossOptions) -> BatchLoss:
    """Kullback-Leibler divergence, nats, between the softmax over the texts of a row of inner products and of teacher
    scores, both over a temperature; averaged over rows, times the squared temperature (Lin et al. 2020)."""
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
    """The loss of (S, E) vectors; with ``dimensions`` the sum over vectors truncated to each of these widths and
    normalized (Matryoshka, Kusupati et al. 2022)."""
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
