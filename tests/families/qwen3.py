"""Qwen3, with heads wider and narrower than their share of the hidden states."""

from dataclasses import asdict
from typing import Any

import transformers
from exactness import Family
from random_models import random_config
from transformers.models.qwen3 import modeling_qwen3

from bertkit.transformer import Qwen3Config
from families.eurobert import run_in_double

_FIXED = ("hidden_dropout_prob", "type_vocab_size", "is_decoder")


def _config(number: int, **changes: Any) -> Qwen3Config:
    settings = {key: value for key, value in asdict(random_config(number)).items() if key not in _FIXED}
    heads = [4, 6][number % 2]
    settings |= {"num_attention_heads": heads, "hidden_size": heads * [4, 6, 10, 34][number % 4]}
    settings |= {"num_key_value_heads": [2, None, None, 3][number % 4], "head_dim": [4, 22, 32, 6][number % 4]}
    settings["rope_theta"] = [1_000.0, 1_000_000.0][number % 2]
    return Qwen3Config(**(settings | changes))


def _published(config: Qwen3Config, **options: Any) -> transformers.Qwen3Config:
    settings = {key: value for key, value in asdict(config).items() if key not in _FIXED}
    rope = {"rope_type": "default", "rope_theta": settings.pop("rope_theta")}
    settings.pop("rope_factor")
    settings |= {"pad_token_id": 1, "rms_norm_eps": settings.pop("layer_norm_eps")}
    return transformers.Qwen3Config(
        attention_dropout=settings.pop("attention_probs_dropout_prob"), rope_parameters=rope, **settings, **options
    )


QWEN3 = Family(
    "qwen3",
    _config,
    _published,
    left_padding=("column", "restart"),
    has_padding_id=True,
    exact_code=lambda: run_in_double(modeling_qwen3, "Qwen3RMSNorm"),
)
