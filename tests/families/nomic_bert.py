"""Nomic BERT and GTE."""

from dataclasses import asdict
from typing import Any

import transformers
from exactness import Family
from random_models import random_config

from bertkit.transformer import GteConfig, NomicBertConfig


def _family(model_type: str, ours: type[NomicBertConfig], theirs: type[transformers.PreTrainedConfig]) -> Family:
    def config(number: int, **changes: Any) -> NomicBertConfig:
        settings = asdict(random_config(number))
        settings["hidden_size"] = settings["num_attention_heads"] * [4, 6, 10, 34][number % 4]
        settings |= {"type_vocab_size": 1 + number % 2, "rope_theta": [1_000.0, 160_000.0][number % 2]}
        if model_type == "gte":
            settings |= {"type_vocab_size": number % 3, "rope_factor": [1.0, 1.25][number % 2]}
        return ours(**(settings | changes))

    def published(config: NomicBertConfig, **options: Any) -> transformers.PreTrainedConfig:
        settings = asdict(config)
        factor = settings.pop("rope_factor")
        rope = {"rope_type": "default", "rope_theta": settings.pop("rope_theta")}
        if factor != 1:
            rope |= {"rope_type": "linear", "factor": factor}
        return theirs(**settings, rope_parameters=rope, **options)

    return Family(model_type, config, published)


NOMIC_BERT = _family("nomic_bert", NomicBertConfig, transformers.NomicBertConfig)
GTE = _family("gte", GteConfig, transformers.GteConfig)
