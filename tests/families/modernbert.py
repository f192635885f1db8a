"""ModernBERT; its published code is run without its roundings to float32."""

from dataclasses import asdict

import transformers
from exactness import Family
from random_modern import published_code_in_double, random_config

from bertkit import ModernBertConfig


def _lengths(config: ModernBertConfig, number: int) -> list[list[int]]:
    longest = 37 + number % 6  # beyond every window
    batches = [[longest, 1, 5, 5, longest - 9, 17], [1, 1]]
    return [*batches, [399, 12]] if config.max_position_embeddings == 400 else batches


def _opened_as(number: int, **changes: int | float | str) -> ModernBertConfig:
    """The interval of global layers, at most the number of layers, as a list of layers cannot express more."""
    config = random_config(number, **changes)
    every = config.global_attn_every_n_layers
    return random_config(number, **{"global_attn_every_n_layers": min(every, config.num_hidden_layers)} | changes)


MODERNBERT = Family(
    "modernbert",
    _opened_as,
    lambda config, **options: transformers.ModernBertConfig(**asdict(config), pad_token_id=0, **options),
    lengths=_lengths,
    left_padding=("column",),
    exact_code=published_code_in_double,
    num_configurations=16,
    num_quick=3,
)
