"""RoBERTa, XLM-RoBERTa and CamemBERT."""

from dataclasses import asdict
from typing import Any

import transformers
from exactness import Family
from random_models import random_config

from bertkit.architectures.roberta import CamembertConfig, RobertaConfig, XlmRobertaConfig


def _family(
    model_type: str, ours: type[RobertaConfig], theirs: type[transformers.PreTrainedConfig], num_quick: int
) -> Family:
    def config(number: int, **changes: Any) -> RobertaConfig:
        types = {"pad_token_id": [1, 3, 0][number % 3], "type_vocab_size": 1 + number % 2}
        return ours(**(asdict(random_config(number)) | types | changes))

    def published(config: RobertaConfig, **options: Any) -> transformers.PreTrainedConfig:
        rows = config.max_position_embeddings + config.pad_token_id + 1
        return theirs(**(asdict(config) | {"max_position_embeddings": rows}), **options)

    return Family(
        model_type,
        config,
        published,
        lengths=lambda config, number: [[13, 1, 5, 5, 9, 2], [1] * 6, [config.max_position_embeddings, 9, 7]],
        left_padding=("restart",),
        positions_skip_padding=True,
        num_quick=num_quick,
    )


ROBERTA = _family("roberta", RobertaConfig, transformers.RobertaConfig, 2)
XLM_ROBERTA = _family("xlm-roberta", XlmRobertaConfig, transformers.XLMRobertaConfig, 1)
CAMEMBERT = _family("camembert", CamembertConfig, transformers.CamembertConfig, 1)
