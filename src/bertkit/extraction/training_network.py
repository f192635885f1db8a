"""The trainable layers of extraction, and their loss. Shape letters: W words, N spans, C labels, D width."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertkit.architectures import Network
from bertkit.batch import Batch
from bertkit.extraction.settings import ExtractionSettings
from bertkit.extraction.training_data import ExtractionBatch, Row
from bertkit.tasks.loss import Loss, LossFunction, mean_of, sums_of

ENCODER = "token_rep_layer.bert_layer.model."


def _mlp(inputs: int, middle: int, outputs: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, middle), nn.ReLU(), nn.Dropout(dropout), nn.Linear(middle, outputs))


class ExtractionNetwork(nn.Module):
    """An encoder and the layers of a scorer of spans or of words, named as in published files."""

    def __init__(self, encoder: Network, settings: ExtractionSettings, dropout: float) -> None:
        super().__init__()
        self.encoder, self.settings, width = encoder, settings, settings.hidden_size
        self.token_rep_layer = nn.ModuleDict()
        if (encoder_width := encoder.config.hidden_size) != width:
            self.token_rep_layer["projection"] = nn.Linear(encoder_width, width)
        lstm = nn.LSTM(width, width // 2, settings.num_lstm_layers, batch_first=True, bidirectional=True)
        self.rnn = nn.ModuleDict({"lstm": lstm})
        if settings.of_tokens:
            self.scorer = nn.ModuleDict({
                "proj_token": nn.Linear(width, 2 * width),
                "proj_label": nn.Linear(width, 2 * width),
                "out_mlp": _mlp(3 * width, 4 * width, 3, dropout),
            })  # fmt: skip
        else:
            sides = {name: _mlp(width, 4 * width, width, dropout) for name in ("project_start", "project_end")}
            spans = nn.ModuleDict(sides | {"out_project": _mlp(2 * width, 4 * width, width, dropout)})
            self.span_rep_layer = nn.ModuleDict({"span_rep_layer": spans})
            self.prompt_rep_layer = _mlp(width, 4 * width, width, dropout)

    def forward(self, batch: Batch, rows: tuple[Row, ...]) -> list[Tensor]:
        """Logits of each sequence: of spans (N, C), in the order of `Row.spans`, or of words (W, C, 3)."""
        hidden = self.encoder(batch).encoded.last_hidden_state
        firsts = batch.cu_seqlens[:-1].tolist()
        words = [hidden[row.word_tokens.to(hidden.device) + first] for row, first in zip(rows, firsts, strict=True)]
        labels = [hidden[row.label_tokens.to(hidden.device) + first] for row, first in zip(rows, firsts, strict=True)]
        words = self._through_lstm([self._projected(each) for each in words])
        score = self._token_logits if self.settings.of_tokens else self._span_logits
        return [
            score(of_words, self._projected(of_labels), row)
            for of_words, of_labels, row in zip(words, labels, rows, strict=True)
        ]

    def _projected(self, rows: Tensor) -> Tensor:
        return self.token_rep_layer["projection"](rows) if "projection" in self.token_rep_layer else rows

    def _through_lstm(self, words: list[Tensor]) -> list[Tensor]:
        lengths = torch.tensor([len(each) for each in words])
        packed = nn.utils.rnn.pack_padded_sequence(pad_sequence(words, True), lengths, True, False)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.rnn["lstm"](packed)[0], True)
        return [rows[:length] for rows, length in zip(padded, lengths.tolist(), strict=True)]

    def _span_logits(self, words: Tensor, labels: Tensor, row: Row) -> Tensor:
        layers: Any = self.span_rep_layer["span_rep_layer"]
        first, relu, dropout, last = layers["out_project"]
        width = words.shape[1]
        starts = F.linear(layers["project_start"](words).relu(), first.weight[:, :width], first.bias)
        ends = F.linear(layers["project_end"](words).relu(), first.weight[:, width:])
        start, end = row.spans.to(words.device).T
        labels = self.prompt_rep_layer(labels)
        spans = dropout(relu(starts[start] + ends[end]))
        return spans @ (labels @ last.weight).T + labels @ last.bias

    def _token_logits(self, words: Tensor, labels: Tensor, row: Row) -> Tensor:
        (word, factor), (label, label_factor) = (
            self.scorer[name](rows).chunk(2, dim=1) for name, rows in (("proj_token", words), ("proj_label", labels))
        )
        shape = len(words), len(labels), words.shape[1]
        both = factor[:, None] * label_factor
        return self.scorer["out_mlp"](torch.cat([word[:, None].expand(shape), label.expand(shape), both], dim=2))


class ExtractionLoss(LossFunction):
    """Binary cross-entropy of every span, or start, end and inside of every word, for every label; nats per word."""

    def totals(self, batch: ExtractionBatch) -> Tensor:
        """(1,) number of words."""
        return torch.tensor([batch.num_words], dtype=torch.float64)

    def loss(self, outputs: list[Tensor], part: ExtractionBatch, totals: Tensor) -> Loss:
        parts = [
            F.binary_cross_entropy_with_logits(logits.float(), row.targets.to(logits.device), reduction="sum")
            for logits, row in zip(outputs, part.rows, strict=True)
        ]
        total = torch.stack(parts).sum()
        return Loss(mean_of(total, totals[0]), sums_of(total, part.num_words))
