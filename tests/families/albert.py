"""ALBERT, with one and two groups of layers."""

from dataclasses import asdict
from typing import Any

import transformers
from exactness import Family
from random_models import random_config

from bertkit.transformer import AlbertConfig


def _config(number: int, **changes: Any) -> AlbertConfig:
    settings = asdict(random_config(number)) | {"embedding_size": 10 + number % 3} | changes
    if number % 5 == 2:
        settings["embedding_size"] = settings["hidden_size"]
    groups = {"num_hidden_groups": 1 + number % min(2, settings["num_hidden_layers"])}
    return AlbertConfig(**(settings | groups))


ALBERT = Family("albert", _config, lambda config, **options: transformers.AlbertConfig(**asdict(config), **options))
