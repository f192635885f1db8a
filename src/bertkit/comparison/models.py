"""The compared models: what each sees, its network and what it learns to predict."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from bertkit.architectures import Network, initialize
from bertkit.comparison.predictors import Predictor
from bertkit.objectives import Corruption, EveryToken, Masking, SpecialIds, continues_word
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import BertConfig
from bertkit.transformer.directional import Direction, DirectionalEncoder, NeighborMean


class ComparedModel(NamedTuple):
    """A model of the comparison."""

    sees: str  # the context from which it predicts a token
    build: Callable[[BertConfig], nn.Module]  # its network, to be initialized
    hides_tokens: bool = False  # it learns from masked tokens, since it would see others

    def network(self, config: BertConfig, seed: int) -> Any:
        """The network with initial weights."""
        network: Any = self.build(config)
        initialize(network, config, seed)
        return network

    def objective(self, tokenizer: Tokenizer, seed: int) -> Corruption:
        """What it learns to predict."""
        special = special_ids(tokenizer)
        if self.hides_tokens:
            return Masking(special, continues_word(tokenizer.vocabulary.tokens), seed=seed)
        return EveryToken(special)


def _directional(direction: Direction) -> Callable[[BertConfig], nn.Module]:
    return lambda config: Predictor(DirectionalEncoder(config, direction), config)


MODELS: Mapping[str, ComparedModel] = {
    "bert": ComparedModel(
        "both sides at once, in every layer", lambda config: Network(config, ["masked_lm"]), hides_tokens=True
    ),
    "left-to-right": ComparedModel("the left alone", _directional("left")),
    "right-to-left": ComparedModel("the right alone", _directional("right")),
    "shallow-bidirectional": ComparedModel(
        "both sides separately, concatenated after the last layer", _directional("both")
    ),
    "static": ComparedModel(
        "five tokens on each side, without order", lambda config: Predictor(NeighborMean(config), config)
    ),
}


def special_ids(tokenizer: Tokenizer) -> SpecialIds:
    """The ids of [CLS], [SEP] and [MASK]."""
    return SpecialIds(tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
