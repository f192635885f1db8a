"""Embedding layers: word, position and token type in BERT; word and position in other Transformers.

Shape letters: T total_tokens, D hidden_size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.later import Tensor, torch
from bertkit.transformer.config import BertConfig
from bertkit.transformer.kernels import apply_linear, dropout, look_up
from bertkit.transformer.modules import nn, table


class Embeddings(nn.Module):
    """``dropout(norm(word + token_type + position))``, three learned tables (Devlin et al. 2018, figure 2;
    normalization and dropout: google-research/bert, modeling.py, ``embedding_postprocessor``).

    Encoders with other kinds of positions have no position table. With a ``type_vocab_size`` of 0 there are no types;
    with 1 every token has type 0, regardless of the batch. Some architectures project the result to another width.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.embedding_width
        self.word = table(config.vocab_size, width)
        self.first_position = config.first_position
        self.max_positions = config.max_position_embeddings
        self.position = table(self.first_position + self.max_positions, width) if config.has_positions else None
        self.token_type = table(config.type_vocab_size, width) if config.type_vocab_size else None
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_norm_biases)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.project = nn.Linear(width, config.hidden_size) if config.projects_embeddings else None

    @property
    def are_of_words(self) -> bool:
        """Whether equal tokens have equal embeddings, wherever they stand."""
        return self.position is None and self.token_type is None

    def forward(self, batch: Batch) -> Tensor:
        """Returns (T, D).

        Raises:
            UsageError: as `check`.
        """
        embedded = dropout(self.look_up(batch), self.dropout)
        return embedded if self.project is None else apply_linear(embedded, self.project).to(embedded.dtype)

    def look_up(self, batch: Batch) -> Tensor:
        """``norm(word + token_type + position)``: (T, embedding_width), without dropout and projection."""
        self.check(batch)
        summed = look_up(self.word, batch.input_ids)
        if self.token_type is not None:
            summed = summed + look_up(self.token_type, self.types(batch))
        if self.position is not None:
            summed = summed + look_up(self.position, batch.position_ids + self.first_position)
        return self.norm(summed)

    def check(self, batch: Batch) -> None:
        """Check that every id has a row in its table; on a GPU, which checks ids itself, only that no sequence is too
        long.

        Raises:
            UsageError: a sequence is longer than the position table, or an id is outside its table.
        """
        check_positions(batch, self.max_positions)
        check_rows("input_ids", batch.input_ids, self.word)
        if self.token_type is not None:
            check_rows("token_type_ids", self.types(batch), self.token_type)

    def types(self, batch: Batch) -> Tensor:
        """(T,) token types, all 0 for a table with one row."""
        has_types = self.token_type is not None and self.token_type.num_embeddings > 1
        return batch.token_type_ids if has_types else 0 * batch.token_type_ids


class SummedEmbeddings(nn.Module):
    """``scale * word + position`` without layer normalization.

    In the original Transformer the scale is the square root of the width and positions are `sinusoids` (Vaswani et al.
    2017, sections 3.4 and 3.5); in GPT-2 there is no scale and positions are learned.
    """

    norm: nn.LayerNorm | None = None  # as in `Embeddings`
    project: nn.Linear | None = None
    token_type: nn.Embedding | None = None

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word = table(config.vocab_size, config.hidden_size)
        self.max_positions = config.max_position_embeddings
        self.position = table(self.max_positions, config.hidden_size) if config.has_positions else None
        self.scale, self.has_sinusoids = config.embedding_scale, config.has_sinusoids
        self._sinusoids: Tensor | None = None  # (max_positions, D), computed when first used
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, batch: Batch) -> Tensor:
        """Returns (T, D).

        Raises:
            UsageError: as `check`.
        """
        return dropout(self.look_up(batch), self.dropout)

    def look_up(self, batch: Batch) -> Tensor:
        """``scale * word + position``: (T, D), without dropout."""
        self.check(batch)
        words = look_up(self.word, batch.input_ids) * self.scale
        if self.position is not None:
            return words + look_up(self.position, batch.position_ids)
        if not self.has_sinusoids:
            return words
        return words + self._positions(words)[batch.position_ids]

    def _positions(self, words: Tensor) -> Tensor:
        """Sinusoids of all positions, with the dtype and device of ``words``."""
        known = self._sinusoids
        if known is None or known.device != words.device or known.dtype != words.dtype:
            with torch.inference_mode(False):
                known = sinusoids(torch.arange(self.max_positions), words.shape[1]).to(words)
            self._sinusoids = known
        return known

    def check(self, batch: Batch) -> None:
        """As `Embeddings.check`."""
        check_positions(batch, self.max_positions)
        check_rows("input_ids", batch.input_ids, self.word)


def embeddings_of(config: Any) -> Embeddings | SummedEmbeddings:
    """The embeddings for a config, uninitialized."""
    return Embeddings(config) if config.normalizes_embeddings else SummedEmbeddings(config)


def sinusoids(position_ids: Tensor, width: int) -> Tensor:
    """Sines of ``position / 10000 ** (2 i / D)`` in the first half of the columns, and cosines in the second.

    (T,) to (T, D), computed in float64 and rounded to float32. Vaswani et al. 2017, section 3.5, interleave them; their
    code and Marian use two halves, which changes only the order of the columns.

    >>> [[round(number, 3) for number in row] for row in sinusoids(torch.tensor([0, 2]), 4).tolist()]
    [[0.0, 0.0, 1.0, 1.0], [0.909, 0.02, -0.416, 1.0]]
    """
    positions = position_ids.cpu() if position_ids.device.type == "mps" else position_ids  # which lacks float64
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    angles = positions[:, None].double() / 10_000**exponents
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width].float().to(position_ids.device)


def check_positions(batch: Batch, max_positions: int) -> None:
    """Check that every position is one of the model's; on a GPU only that no sequence is too long.

    Raises:
        UsageError: no batch; a sequence is too long, or a position is outside the table.
    """
    if not hasattr(batch, "num_positions"):
        raise UsageError(
            f"the encoder got {type(batch).__name__} ({batch!r:.40}): expected a Batch, as of bertkit.collate"
        )
    if batch.num_positions > max_positions:
        raise UsageError(
            f"the batch uses {batch.num_positions} positions, the model has {max_positions} "
            "(max_position_embeddings): cut or window the texts when encoding them"
        )
    _check_range("position_ids", batch.position_ids, max_positions, "count the tokens of each sequence from 0")


def check_rows(name: str, ids: Tensor, rows: nn.Embedding) -> None:
    """Check that every id has a row in a table; not on a GPU, which checks ids itself, nor in compiled networks.

    Raises:
        UsageError: an id is outside the table.
    """
    _check_range(name, ids, rows.num_embeddings, "encode the texts with the model's own tokenizer")


def _check_range(name: str, ids: Tensor, number: int, advice: str) -> None:
    if isinstance(ids, np.ndarray):
        lowest, highest = int(ids.min()), int(ids.max())
    elif ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    else:
        lowest, highest = (int(bound) for bound in torch.aminmax(ids))
    if lowest < 0 or highest >= number:
        raise UsageError(f"the batch holds {name} from {lowest} to {highest}, the model has {number} of them: {advice}")
