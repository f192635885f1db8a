"""Cross-entropy among the texts of a batch. Shape letters: S sequences, B instances, D documents, K known positives.

An instance is a query with one of its positives; without several positives a row is an instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from bertkit.later import F, torch
from bertkit.tasks.examples import POSITIVE
from bertkit.tasks.field_types import AboveZero
from bertkit.tasks.losses.loss import BatchLoss, RowKind, SentenceLoss, loss_parameter

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.tasks.similarity.rows import Roles


@dataclass(frozen=True)
class InBatch(SentenceLoss):
    """Cross-entropy of each positive among all documents of the batch, by cosines over a temperature (van den Oord et
    al. 2018; Henderson et al. 2017): the other rows' documents are its negatives, as are the negatives of its row.

    ``directions`` are the candidates that a positive competes with: the other documents of the batch; these, and in a
    second term the other queries (Günther et al. 2023); all other documents and queries of the batch in one sum,
    queries against queries and documents against documents too (Li et al. 2023).
    """

    temperature: AboveZero = loss_parameter(0.05, "divisor of cosines")
    directions: Literal["query-to-document", "both", "all"] = loss_parameter(
        "query-to-document", "candidates that a positive competes with"
    )

    needs: ClassVar = "pairs"
    default_for: ClassVar[tuple[RowKind, ...]] = ("pairs",)
    uses_guide: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("nearest_accuracy", "masked_per_row")

    def __call__(self, vectors: Tensor, roles: Roles) -> BatchLoss:
        unit = F.normalize(vectors, dim=-1)
        queries, positives, documents = unit[roles.queries], unit[roles.positives], unit[roles.documents]
        own = (roles.positives[:, None] == roles.documents).nonzero()[:, 1]  # (B,) columns of the positives
        masked = Masked.of(roles)
        scores = _masked(queries @ documents.T / self.temperature, masked.documents)  # (B, D)
        positive = scores.gather(1, own[:, None]).squeeze(1)
        sums = {
            # instances whose positive is nearest, and comparisons masked because the texts belong together
            "nearest_accuracy": float((scores.detach().argmax(dim=1) == own).sum()),
            "masked_per_row": float(masked.documents.sum()),
        }
        if self.directions == "query-to-document":
            return BatchLoss((scores.logsumexp(dim=1) - positive).mean(), sums)
        to_queries = _masked(positives @ queries.T / self.temperature, masked.positives_to_queries)  # (B, B)
        sums["masked_per_row"] += float(masked.positives_to_queries.sum())
        if self.directions == "both":
            normalizer = (scores.logsumexp(dim=1) + to_queries.logsumexp(dim=1)) / 2
            return BatchLoss((normalizer - positive).mean(), sums)
        itself = roles.queries[:, None] == roles.queries
        same_row = roles.rows[roles.positives][:, None] == roles.rows[roles.documents]
        query_pairs = _masked(queries @ queries.T / self.temperature, masked.queries | itself)
        document_pairs = _masked(positives @ documents.T / self.temperature, masked.positives_to_documents | same_row)
        sums["masked_per_row"] += float(masked.queries.sum() + (masked.positives_to_documents & ~same_row).sum())
        together = torch.cat([scores, query_pairs, to_queries, document_pairs], dim=1)
        return BatchLoss((together.logsumexp(dim=1) - positive).mean(), sums)


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


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, float("-inf"))
