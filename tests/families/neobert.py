"""NeoBERT."""

from dataclasses import asdict
from typing import Any

import neobert_reference
from exactness import Family
from random_models import random_config

from bertkit.transformer import NeoBertConfig


def _config(number: int, **changes: Any) -> NeoBertConfig:
    drawn = asdict(random_config(number))
    names = "vocab_size num_hidden_layers intermediate_size max_position_embeddings layer_norm_eps".split()
    heads = [4, 6][number % 2]
    settings = {name: drawn[name] for name in names} | {"num_attention_heads": heads}
    return NeoBertConfig(**(settings | {"hidden_size": heads * [4, 14, 10, 34][number % 4]} | changes))


def _published(config: NeoBertConfig, **options: Any) -> neobert_reference.NeoBERTConfig:
    sizes = {name: getattr(config, name) for name in (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"
    )}  # fmt: skip
    sizes |= {"max_length": config.max_position_embeddings, "norm_eps": config.layer_norm_eps}
    return neobert_reference.NeoBERTConfig(**sizes, decoder_init_range=config.initializer_range, **options)


NEOBERT = Family("neobert", _config, _published, left_padding=("column", "restart"), module=neobert_reference)
