"""DeBERTa, versions 2 and 3."""

from dataclasses import asdict
from typing import Any

import transformers
from exactness import Family
from random_models import random_config

from bertkit.transformer import DebertaConfig


def _config(number: int, **changes: Any) -> DebertaConfig:
    settings = asdict(random_config(number)) | {
        "type_vocab_size": 2 * (number % 2),
        "position_buckets": [8, 256, 12][number % 3],
        "max_relative_positions": [20, 512, 64][number % 3],
        "pooler_hidden_act": ["gelu", "tanh"][number % 2],
    }
    return DebertaConfig(**(settings | changes))


def _published(config: DebertaConfig, **options: Any) -> transformers.DebertaV2Config:
    fixed = {
        "relative_attention": True, "pos_att_type": "p2c|c2p", "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    }  # fmt: skip
    return transformers.DebertaV2Config(**asdict(config), **fixed, **options)


def _lengths(config: DebertaConfig, number: int) -> list[list[int]]:
    batches = [[13, 1, 5, 5, 9, 2], [1] * 6, [config.max_position_embeddings, 16, 17, 18, 8, 7]]
    return [*batches, [127, 130, 132]] if config.max_position_embeddings == 512 else batches


DEBERTA = Family("deberta-v2", _config, _published, lengths=_lengths)
