"""DistilBERT."""

import random
from typing import Any

import transformers
from exactness import Family

from bertkit.architectures.distilbert import DistilBertConfig
from bertkit.transformer.activations import ACTIVATIONS


def _random_config(number: int, **changes: Any) -> DistilBertConfig:
    """Configuration ``number``: every activation that DistilBERT publishes in turn, 1 to 4 layers, 3 to 5 heads."""
    draw = random.Random(number)
    heads = draw.choice([3, 4, 5])
    settings = {
        "vocab_size": draw.choice([97, 99, 101]),
        "hidden_size": heads * draw.choice([5, 6, 7, 9]),
        "num_hidden_layers": 1 + number % 4,
        "num_attention_heads": heads,
        "intermediate_size": draw.choice([31, 37, 43]),
        "hidden_act": list(ACTIVATIONS)[number % len(ACTIVATIONS)],
        "max_position_embeddings": draw.choice([23, 29, 41]),
    }
    return DistilBertConfig(**(settings | changes))


def _published(config: DistilBertConfig, **options: Any) -> transformers.DistilBertConfig:
    return transformers.DistilBertConfig(
        dim=config.hidden_size, n_layers=config.num_hidden_layers, n_heads=config.num_attention_heads,
        hidden_dim=config.intermediate_size, activation=config.hidden_act, vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings, **options,
    )  # fmt: skip


DISTILBERT = Family(
    "distilbert",
    _random_config,
    _published,
    lengths=lambda config, number: [[13, 1, 5, 5, 9, 2], [1] * 6, [7, 23, 4, 5, 5, 2]],
    num_configurations=16,
    num_quick=3,
)
