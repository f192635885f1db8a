"""Encoders that predict a token from its left, its right, both sides, or its neighbors.

Shape letters: T total_tokens, P predicted tokens, D hidden_size.
"""

from dataclasses import replace
from typing import Literal

from bertkit.batch import Batch
from bertkit.later import Tensor, torch
from bertkit.transformer.attention import PositionValues
from bertkit.transformer.config import BertConfig
from bertkit.transformer.embeddings import Embeddings
from bertkit.transformer.kernels import look_up
from bertkit.transformer.layer import Layer, apply_layers
from bertkit.transformer.modules import nn, table
from bertkit.transformer.window import CAUSAL, REVERSED

Direction = Literal["left", "right", "both"]


class DirectionalEncoder(nn.Module):
    """Left-to-right and right-to-left Transformers over shared embeddings, alone or concatenated.

    With both, the layers are divided among the directions and the outputs are concatenated (ELMo, Peters et al. 2018,
    with Transformers; the "shallow" bidirectional model of Devlin et al. 2018, section 1). A token is predicted from
    the output at the token before it, and from that at the token after it.
    """

    def __init__(self, config: BertConfig, direction: Direction) -> None:
        super().__init__()
        names = ("left", "right") if direction == "both" else (direction,)
        self.config = replace(config, num_hidden_layers=max(1, config.num_hidden_layers // len(names)))
        self.embeddings = Embeddings(config)
        self.stacks = nn.ModuleDict()
        for name in names:
            window = CAUSAL if name == "left" else REVERSED
            self.stacks[name] = nn.ModuleList(
                Layer(replace(config.layer(number), window=window)) for number in range(self.config.num_hidden_layers)
            )
        self.width = len(names) * config.hidden_size

    def forward(self, batch: Batch, positions: Tensor) -> Tensor:
        """Representations (P, width) of the tokens at (P,) packed positions, computed from the other tokens; the first
        and last token of a sequence are not allowed."""
        outputs = self._outputs(batch)
        parts = [hidden[positions - 1 if name == "left" else positions + 1] for name, hidden in outputs.items()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def states(self, batch: Batch) -> Tensor:
        """Representations (T, width) of all tokens, each computed from itself and the tokens on the model's side."""
        return torch.cat(list(self._outputs(batch).values()), dim=1)

    def _outputs(self, batch: Batch) -> dict[str, Tensor]:
        """The (T, D) output of each direction."""
        embedded, positions = self.embeddings(batch), PositionValues({}, None)
        return {
            name: apply_layers(list(layers), embedded, batch, positions)  # pyrefly: ignore
            for name, layers in self.stacks.items()
        }


class NeighborMean(nn.Module):
    """The mean of the static vectors of neighboring tokens (word2vec's continuous bag of words, Mikolov et al.
    2013)."""

    def __init__(self, config: BertConfig, reach: int = 5) -> None:
        super().__init__()
        self.config, self.reach, self.width = config, reach, config.hidden_size
        self.embeddings = nn.Module()
        self.embeddings.word = table(config.vocab_size, config.hidden_size)

    def forward(self, batch: Batch, positions: Tensor) -> Tensor:
        """As `DirectionalEncoder.forward`, from up to ``reach`` tokens on each side: (P, D)."""
        vectors = self.states(batch)
        bounds = batch.cu_seqlens.long()
        sequence = torch.searchsorted(bounds, positions, right=True) - 1
        first, last = bounds[sequence], bounds[sequence + 1] - 1
        summed, count = torch.zeros_like(vectors[positions]), torch.zeros_like(positions)
        for distance in (*range(-self.reach, 0), *range(1, self.reach + 1)):
            at = positions + distance
            inside = (at >= first) & (at <= last)
            summed = summed + vectors[at.clamp(0, len(vectors) - 1)] * inside[:, None]
            count = count + inside
        return summed / count[:, None]

    def states(self, batch: Batch) -> Tensor:
        """The static vector (T, D) of each token."""
        return look_up(self.embeddings.word, batch.input_ids)  # pyrefly: ignore
