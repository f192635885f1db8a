"""The three embeddings of BERT: token, position and segment (Devlin et al. 2018, figure 2)."""

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.transformer.config import BertConfig
from bertkit.transformer.kernels import apply_linear, dropout, look_up


class Embeddings(nn.Module):
    """``norm(word + token_type + position)``, all three learned.

    Encoders that hold positions elsewhere have none here. With a ``type_vocab_size`` of 0 there are no types, and with
    1 every token has type 0, for any types in the batch.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_width
        self.word = table(config.vocab_size, width)
        self.first_position = config.first_position
        self.max_positions = config.max_position_embeddings
        self.position = table(self.first_position + self.max_positions, width) if config.has_positions else None
        self.token_type = table(config.type_vocab_size, width) if config.type_vocab_size else None
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.project = nn.Linear(width, config.hidden_size) if config.projects_embeddings else None

    def forward(self, batch: Batch) -> Tensor:
        """Returns (total_tokens, hidden_size).

        Raises:
            UsageError: as `check`.
        """
        embedded = self.look_up(batch)
        return embedded if self.project is None else apply_linear(embedded, self.project)

    def look_up(self, batch: Batch) -> Tensor:
        """The same in the width of the tables: (total_tokens, embedding_width)."""
        self.check(batch)
        summed = look_up(self.word, batch.input_ids)
        if self.token_type is not None:
            summed = summed + look_up(self.token_type, self.types(batch))
        if self.position is not None:
            summed = summed + look_up(self.position, batch.position_ids + self.first_position)
        return dropout(self.norm(summed), self.dropout)

    def check(self, batch: Batch) -> None:
        """Check that every id of a batch is a row of its table; on a GPU, which checks ids itself, positions only.

        Raises:
            UsageError: a sequence is longer than the position table, or an id is outside its table.
        """
        check_positions(batch, self.max_positions)
        check_rows("input_ids", batch.input_ids, self.word)
        if self.token_type is not None:
            check_rows("token_type_ids", self.types(batch), self.token_type)

    def types(self, batch: Batch) -> Tensor:
        """(T,) token types as the table has them."""
        has_types = self.token_type is not None and self.token_type.num_embeddings > 1
        return batch.token_type_ids if has_types else torch.zeros_like(batch.token_type_ids)


def check_positions(batch: Batch, max_positions: int) -> None:
    """Check that a model has all positions of a batch.

    Raises:
        UsageError: a sequence is longer.
    """
    if batch.num_positions > max_positions:
        raise UsageError(
            f"the batch uses {batch.num_positions} positions, the model has {max_positions} "
            "(max_position_embeddings): cut or window the texts when encoding them"
        )


def check_rows(name: str, ids: Tensor, rows: nn.Embedding) -> None:
    """Check that every id has its row in a table; not on a GPU, which checks that itself.

    Raises:
        UsageError: an id is outside the table.
    """
    if ids.device.type != "cpu":
        return
    lowest, highest = (int(bound) for bound in torch.aminmax(ids))
    if lowest < 0 or highest >= rows.num_embeddings:
        raise UsageError(
            f"the batch holds {name} from {lowest} to {highest}, the model has {rows.num_embeddings} of them: encode "
            "the texts with the model's own tokenizer"
        )


def table(num_rows: int, width: int) -> nn.Embedding:
    """A table whose values are still to come: drawing them on the meta device would import torch's compiler (1.5 s)."""
    return nn.Embedding.from_pretrained(torch.empty(num_rows, width), freeze=False)
