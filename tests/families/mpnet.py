"""MPNet."""

from dataclasses import asdict
from typing import Any

import transformers
from exactness import Family
from random_models import random_config

from bertkit.architectures.mpnet import MpnetConfig


def _config(number: int, **changes: Any) -> MpnetConfig:
    settings = {key: value for key, value in asdict(random_config(number)).items() if key != "type_vocab_size"}
    return MpnetConfig(**(settings | changes))


def _published(config: MpnetConfig, **options: Any) -> transformers.MPNetConfig:
    settings = asdict(config) | {"max_position_embeddings": config.max_position_embeddings + 2}
    settings.pop("type_vocab_size")
    return transformers.MPNetConfig(**settings, **options)


def _lengths(config: MpnetConfig, number: int) -> list[list[int]]:
    batches = [[13, 1, 5, 5, 9, 2], [1] * 6, [config.max_position_embeddings, 8, 12, 16, 9, 23]]
    return [*batches, [130, 46, 91]] if config.max_position_embeddings == 512 else batches


MPNET = Family("mpnet", _config, _published, lengths=_lengths, left_padding=("restart",), positions_skip_padding=True)
