"""ELECTRA, with and without a layer between embeddings and encoder."""

from dataclasses import asdict
from typing import Any

import transformers
from exactness import Family
from random_models import random_config

from bertkit.architectures.electra import ElectraConfig


def _config(number: int, **changes: Any) -> ElectraConfig:
    settings = asdict(random_config(number)) | {"embedding_size": 10 + number % 3} | changes
    return ElectraConfig(**(settings | ({"embedding_size": settings["hidden_size"]} if number % 3 == 1 else {})))


ELECTRA = Family("electra", _config, lambda config, **options: transformers.ElectraConfig(**asdict(config), **options))
