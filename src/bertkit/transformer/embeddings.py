"""Token, position and segment to a first vector: the three embeddings of BERT (Devlin et al. 2018, figure 2)."""

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.transformer.config import TransformerConfig
from bertkit.transformer.kernels import dropout


class Embeddings(nn.Module):
    """``norm(word + token_type + position)``, all three learned."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.word = _embedding(config.vocab_size, config.hidden_size)
        self.position = _embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type = _embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, batch: Batch) -> Tensor:
        """Returns (total_tokens, hidden_size).

        Raises:
            UsageError: as `check`.
        """
        self.check(batch)
        summed = self.word(batch.input_ids) + self.token_type(batch.token_type_ids) + self.position(batch.position_ids)
        return dropout(self.norm(summed), self.dropout)

    def check(self, batch: Batch) -> None:
        """Check that every id of a batch has its row in the tables; on a GPU, which tells that itself, positions only.

        Raises:
            UsageError: a sequence is longer than the position table, or an id is outside its table.
        """
        if batch.num_positions > self.position.num_embeddings:
            raise UsageError(
                f"the batch uses {batch.num_positions} positions, the model has {self.position.num_embeddings} "
                "(max_position_embeddings): cut or window the texts when encoding them"
            )
        if batch.input_ids.device.type != "cpu":
            return
        for ids, table in ((batch.input_ids, self.word), (batch.token_type_ids, self.token_type)):
            lowest, highest = (int(bound) for bound in torch.aminmax(ids))
            if lowest < 0 or highest >= table.num_embeddings:
                raise UsageError(
                    f"the batch holds input_ids up to {int(batch.input_ids.max())} and token_type_ids up to "
                    f"{int(batch.token_type_ids.max())}, the model has {self.word.num_embeddings} and "
                    f"{self.token_type.num_embeddings} of them: encode the texts with the model's own tokenizer"
                )


def _embedding(num_rows: int, width: int) -> nn.Embedding:
    """A table whose values are still to come: drawing them on the meta device would import torch's compiler (1.5 s)."""
    return nn.Embedding.from_pretrained(torch.empty(num_rows, width), freeze=False)
