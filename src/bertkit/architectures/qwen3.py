"""Qwen3 as an encoder of texts: Qwen3-Embedding (Zhang et al. 2025)."""

from pathlib import Path

from bertkit.architectures.architecture import Architecture, Content, Head, tokens
from bertkit.architectures.gated_config import with_rotary, write_rotary
from bertkit.architectures.llama_layers import ENCODER_PARTS, ENCODER_RULES, KEY_NAMES, without_default_heads
from bertkit.architectures.roberta import classifier
from bertkit.architectures.tensor_names import TensorNames
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member
from bertkit.heads.classification import ClassificationHead
from bertkit.transformer import Encoder, Qwen3Config


def _read_config(content: Content, path: Path) -> Content:
    kinds = member(content, "layer_types", list, path, [])
    if set(map(str, kinds)) - {"full_attention"}:
        raise CheckpointError(f"{path} has layer_types={kinds!r:.200}; supported: full_attention")
    content = {"num_key_value_heads": 32} | {key: value for key, value in content.items() if key != "layer_types"}
    return with_rotary(without_default_heads(content), path, ("default", "linear"), 10_000.0)


def _write_config(content: Content) -> Content:
    """The content of a ``config.json`` whose padding is not the end of texts: transformers' classifier reads the last
    token that is not padding."""
    pad = None if content["pad_token_id"] == content["eos_token_id"] else content["pad_token_id"]
    return write_rotary(content) | {"pad_token_id": pad}


QWEN3 = Architecture(
    model_type="qwen3",
    class_prefix="Qwen3",
    config=Qwen3Config,
    encoder=Encoder,
    heads={
        "sequence_classification": Head(
            lambda config, options: ClassificationHead(
                config, options.num_labels, options.dropout_prob or 0.0, has_bias=False
            ),
            lambda config: "last",
        ),
        "token_classification": Head(classifier, tokens),
    },
    names=TensorNames(
        prefix="model.",
        encoder_parts=ENCODER_PARTS,
        head_parts=("score.",),
        rules=[
            *ENCODER_RULES,
            (r"heads\.(sequence_classification|token_classification)\.classifier\.", "score."),
        ],
        signature_tensors={},
        classifiers={
            "score.bias": ("token_classification",),
            "score.weight": ("sequence_classification",),
        },
        unused_parts=("lm_head.",),
    ),
    key_names=KEY_NAMES,
    required_values={"attention_bias": (False,), "use_sliding_window": (False,)},
    ignored_keys=frozenset("sliding_window max_window_layers".split()),
    read_config=_read_config,
    write_config=_write_config,
    token_id_keys={"eos_token_id": "sep"},
)
