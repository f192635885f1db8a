"""EuroBERT, with as many key/value heads as heads and with fewer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from unittest import mock

import torch
import transformers
from exactness import Family
from random_models import random_config
from torch import Tensor
from transformers.models.eurobert import modeling_eurobert
from transformers.models.llama.modeling_llama import repeat_kv

from bertkit.transformer import EuroBertConfig

_FIXED = ("hidden_dropout_prob", "type_vocab_size")


def _config(number: int, **changes: Any) -> EuroBertConfig:
    settings = {key: value for key, value in asdict(random_config(number)).items() if key not in _FIXED}
    heads = [4, 6][number % 2]
    settings |= {"num_attention_heads": heads, "hidden_size": heads * [4, 6, 10, 34][number % 4]}
    settings |= {"num_key_value_heads": [2, None, None, 3][number % 4], "rope_theta": [1_000.0, 250_000.0][number % 2]}
    settings["classifier_pooling"] = ["late", "mean", "bos"][number % 3]
    return EuroBertConfig(**(settings | changes))


def _published(config: EuroBertConfig, **options: Any) -> transformers.EuroBertConfig:
    settings = {key: value for key, value in asdict(config).items() if key not in _FIXED}
    rope = {"rope_type": "default", "rope_theta": settings.pop("rope_theta")}
    settings.pop("rope_factor")
    settings |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "mask_token_id": 4}
    settings |= {"rms_norm_eps": settings.pop("layer_norm_eps")}
    return transformers.EuroBertConfig(
        attention_dropout=settings.pop("attention_probs_dropout_prob"), rope_parameters=rope, **settings, **options
    )


@contextmanager
def run_in_double(module: Any, norm: str) -> Iterator[None]:
    """Let a module of transformers compute norms and attention probabilities in the precision of its weights, which it
    rounds to float32.

    Args:
        norm: name of its class of norms.
    """
    with (
        mock.patch.object(getattr(module, norm), "forward", _norm),
        mock.patch.object(module, "eager_attention_forward", _attend),
    ):
        yield


def _norm(norm: Any, hidden: Tensor) -> Tensor:
    return norm.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, Tensor]:
    key, value = (repeat_kv(part, module.num_key_value_groups) for part in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    probs = (scores if attention_mask is None else scores + attention_mask).softmax(-1)
    return (probs @ value).transpose(1, 2).contiguous(), probs


EUROBERT = Family(
    "eurobert", _config, _published, exact_code=lambda: run_in_double(modeling_eurobert, "EuroBertRMSNorm")
)
