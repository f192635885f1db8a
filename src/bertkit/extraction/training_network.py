"""The trainable layers of extraction, and their loss. Shape letters: W words, N spans, C labels, D width."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.architectures import Network
from bertkit.batch import Batch
from bertkit.extraction.settings import ExtractionSettings
from bertkit.extraction.training_data import ExtractionBatch, Row
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of
from bertkit.transformer.kernels import apply_linear, dropout, linear, project

ENCODER = "token_rep_layer.bert_layer.model."


_FIRST_LOGIT = -4.0
"""Logit of every pair of a word and a label before training: nearly all pairs are no entity."""


def _mlp(inputs: int, middle: int, outputs: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, middle), nn.ReLU(), nn.Dropout(dropout), nn.Linear(middle, outputs))


class ExtractionNetwork(nn.Module):
    """An encoder and the layers of a scorer of spans or of words, named as in published files."""

    def __init__(self, encoder: Network, settings: ExtractionSettings, dropout: float) -> None:
        super().__init__()
        self.encoder, self.settings, width = encoder, settings, settings.hidden_size
        if settings.of_tokens:
            scores: Any = _mlp(3 * width, 4 * width, 3, dropout)
            scores[3].bias.data.fill_(_FIRST_LOGIT)
            sides = {name: nn.Linear(width, 2 * width) for name in ("proj_token", "proj_label")}
            self.scorer = nn.ModuleDict(sides | {"out_mlp": scores})
        else:
            sides = {name: _mlp(width, 4 * width, width, dropout) for name in ("project_start", "project_end")}
            spans = nn.ModuleDict(sides | {"out_project": _mlp(2 * width, 4 * width, width, dropout)})
            self.span_rep_layer = nn.ModuleDict({"span_rep_layer": spans})
            self.prompt_rep_layer = _mlp(width, 4 * width, width, dropout)

    def forward(self, batch: Batch, rows: tuple[Row, ...]) -> list[Tensor]:
        """Logits of each sequence: of spans (N, C), in the order of `Row.spans`, or of words (W, C, 3)."""
        hidden, firsts = self.encoder(batch).encoded.last_hidden_state, batch.cu_seqlens[:-1].long().split(1)
        words, labels = (
            hidden.index_select(0, torch.cat(list(map(torch.add, places, firsts))))
            for places in ([row.word_tokens for row in rows], [row.label_tokens for row in rows])
        )
        num_words, num_labels = [len(row.word_tokens) for row in rows], [len(row.label_tokens) for row in rows]
        if self.settings.of_tokens:
            return self._token_logits(words, labels, num_words, num_labels)
        starts, ends, queries, added = self._span_terms(words, labels)
        layers: Any = self.span_rep_layer["span_rep_layer"]
        logits = []
        for row, start, end, query, more in zip(
            rows, starts.split(num_words), ends.split(num_words), queries.split(num_labels), added.split(num_labels),
            strict=True,
        ):  # fmt: skip
            first, last = row.spans.unbind(1)
            terms = (start.index_select(0, first) + end.index_select(0, last)).relu_()
            logits.append(dropout(terms, layers["out_project"][2]) @ query.T + more)
        return logits

    def _span_terms(self, words: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(W, 4 D) terms of words as first and as last of a span, and what labels multiply with these (C, 4 D) and add
        (C,): the products of `SpanScorer`."""
        layers: Any = self.span_rep_layer["span_rep_layer"]
        first, last = layers["out_project"][0], layers["out_project"][3]
        of_start, of_end = _parts(first.weight, 2)
        starts = linear(_through(layers["project_start"], words).relu(), of_start, first.bias)
        ends = linear(_through(layers["project_end"], words).relu(), of_end, None)
        labels = _through(self.prompt_rep_layer, labels)
        return starts, ends, linear(labels, last.weight.T.contiguous(), None), labels.float() @ last.bias

    def _token_logits(self, words: Tensor, labels: Tensor, num_words: list[int], num_labels: list[int]) -> list[Tensor]:
        scorer: Any = self.scorer
        first, _, module, last = scorer["out_mlp"]
        of_word, of_label, of_both = _parts(first.weight, 3)
        word, word_factor = _parts(apply_linear(words, scorer["proj_token"]), 2)
        label, label_factor = _parts(apply_linear(labels, scorer["proj_label"]), 2)
        both = _of_pairs(torch.mul, word_factor, label_factor, num_words, num_labels)
        word, label = linear(word, of_word, first.bias), linear(label, of_label, None)
        terms = linear(both, of_both, None) + _of_pairs(torch.add, word, label, num_words, num_labels)
        logits = project(dropout(terms.relu(), module).float(), last)
        shapes = list(zip(num_words, num_labels, strict=True))
        of_rows = logits.split([words * labels for words, labels in shapes])
        return [each.view(*shape, 3) for each, shape in zip(of_rows, shapes, strict=True)]


def _parts(rows: Tensor, number: int) -> list[Tensor]:
    """Columns in equal parts; contiguous, as the products of other rows are slow."""
    return [part.contiguous() for part in rows.chunk(number, dim=1)]


def _of_pairs(
    operation: Callable[[Tensor, Tensor], Tensor], words: Tensor, labels: Tensor, num_words: list[int],
    num_labels: list[int],
) -> Tensor:  # fmt: skip
    """(pairs, D) results of all pairs of a word and a label of the same sequence."""
    pairs = zip(words.split(num_words), labels.split(num_labels), strict=True)
    return torch.cat([operation(word[:, None], label).flatten(0, 1) for word, label in pairs])


def _through(mlp: Any, rows: Tensor) -> Tensor:
    """Linear layers with ReLU and dropout between them."""
    first, _, module, last = mlp
    return apply_linear(dropout(apply_linear(rows, first).relu(), module), last)


class ExtractionLoss(LossFunction):
    """Binary cross-entropy of every span, or start, end and inside of every word, for every label; nats per word.

    Args:
        weight: of what is there, relative to what is not: most is not.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def totals(self, batch: ExtractionBatch) -> Tensor:
        """(1,) number of words."""
        return torch.tensor([batch.num_words], dtype=torch.float64)

    def loss(self, outputs: list[Tensor], part: ExtractionBatch, totals: Tensor) -> Loss:
        weight = torch.tensor(self.weight, device=outputs[0].device)
        parts = [
            F.binary_cross_entropy_with_logits(logits.float(), row.targets, reduction="sum", pos_weight=weight)
            for logits, row in zip(outputs, part.rows, strict=True)
        ]
        total = torch.stack(parts).sum()
        return Loss(mean_of(total, totals[0]), sums_of(total, part.num_words))
