"""ALBERT's encoder: groups of layers share weights (Lan et al. 2020, section 3.1)."""

from dataclasses import dataclass
from typing import cast

from bertkit.errors import UsageError
from bertkit.transformer.config import BertConfig
from bertkit.transformer.config_checks import check_probabilities
from bertkit.transformer.encoder import Encoder
from bertkit.transformer.layer import Layer

_MOST_LAYERS = 1_000


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """Defaults are ALBERT base, version 2 (Lan et al. 2020, and its published ``config.json``)."""

    vocab_size: int = 30_000  # rows of the word embedding
    embedding_size: int = 128  # width of the embeddings; a linear layer projects them to hidden_size
    hidden_act: str = "gelu_new"  # activation inside the feed-forward network: a key of ACTIVATIONS
    hidden_dropout_prob: float = 0.0  # dropout on embeddings and on each sub-layer's output, in training
    attention_probs_dropout_prob: float = 0.0  # dropout on attention probabilities, in training
    classifier_dropout_prob: float = 0.1  # dropout before a classifier, in training
    num_hidden_groups: int = 1  # consecutive layers of a group share weights

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probabilities(self, "classifier_dropout_prob")
        if not self.num_hidden_groups <= max(1, self.num_hidden_layers) <= _MOST_LAYERS:
            raise UsageError(
                f"num_hidden_groups={self.num_hidden_groups}, num_hidden_layers={self.num_hidden_layers}: expected no "
                f"more groups than layers, and up to {_MOST_LAYERS} layers"
            )

    @property
    def embedding_width(self) -> int:
        return self.embedding_size

    @property
    def projects_embeddings(self) -> bool:
        return True


class AlbertEncoder(Encoder):
    """BERT's encoder with weights shared by the layers of a group."""

    @staticmethod
    def num_stored_layers(config: BertConfig) -> int:
        return cast(AlbertConfig, config).num_hidden_groups

    def in_order(self) -> list[Layer]:
        number = self.config.num_hidden_layers
        groups = [int(layer / (number / len(self.layers))) for layer in range(number)]
        return [cast(Layer, self.layers[group]) for group in groups]
