"""BERT."""

from dataclasses import asdict

import transformers
from exactness import Family
from random_models import random_config

from bertkit import BertConfig


def _lengths(config: BertConfig, number: int) -> list[list[int]]:
    longest = 11 + number % 7
    batches = [[longest, 1, 5, 5, longest - 3, 2], [1] * 6]
    return [*batches, [512, 9, 7]] if config.max_position_embeddings == 512 else batches


BERT = Family(
    "bert",
    random_config,
    lambda config, **options: transformers.BertConfig(**asdict(config), **options),
    lengths=_lengths,
    left_padding=("column", "restart"),
    num_configurations=50,
    num_quick=4,
)
