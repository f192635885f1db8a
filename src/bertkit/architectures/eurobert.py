"""EuroBERT (Boizard et al. 2025): an encoder for European languages."""

from pathlib import Path

from bertkit.architectures.architecture import Architecture, Content, Head, HeadOptions, tokens
from bertkit.architectures.gated_config import with_rotary, write_rotary
from bertkit.architectures.llama_layers import ENCODER_PARTS, ENCODER_RULES, KEY_NAMES, without_default_heads
from bertkit.architectures.roberta import classifier
from bertkit.architectures.tensor_names import TensorNames
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member
from bertkit.heads.classification import DenseClassificationHead, LateClassificationHead
from bertkit.heads.masked_lm import VocabularyHead
from bertkit.transformer import Encoder, EuroBertConfig


def _read_config(content: Content, path: Path) -> Content:
    heads, width = (member(content, key, int, path, 0) for key in ("num_attention_heads", "hidden_size"))
    head_dim = content.get("head_dim")
    if head_dim is not None and head_dim * (heads or 0) != width:
        raise CheckpointError(f"{path} has head_dim={head_dim!r}: expected hidden_size / num_attention_heads")
    content = without_default_heads({key: value for key, value in content.items() if key != "head_dim"})
    if "clf_pooling" in content:  # the key of the original code
        content.setdefault("classifier_pooling", content.pop("clf_pooling"))
    return with_rotary(content, path, ("default", "linear"), 10_000.0)


def _sequences(config: EuroBertConfig, options: HeadOptions) -> DenseClassificationHead:
    kind = LateClassificationHead if config.classifier_pooling == "late" else DenseClassificationHead
    return kind(config, options.num_labels, options.dropout_prob or 0.0, "gelu")


EUROBERT = Architecture(
    model_type="eurobert",
    class_prefix="EuroBert",
    config=EuroBertConfig,
    encoder=Encoder,
    heads={
        "masked_lm": Head(lambda config, options: VocabularyHead(config, has_bias=False, has_weight=True), tokens),
        "sequence_classification": Head(
            _sequences, lambda config: "cls" if config.classifier_pooling == "bos" else "mean"
        ),
        "token_classification": Head(classifier, tokens),
    },
    names=TensorNames(
        prefix="model.",
        encoder_parts=ENCODER_PARTS,
        head_parts=("lm_head.", "dense.", "classifier."),
        rules=[
            *ENCODER_RULES,
            (r"heads\.masked_lm\.weight$", "lm_head.weight"),
            (r"heads\.sequence_classification\.dense\.", "dense."),
            (r"heads\.(sequence_classification|token_classification)\.classifier\.", "classifier."),
        ],
        signature_tensors={"masked_lm": "lm_head.weight"},
        classifiers={"classifier.weight": ("sequence_classification", "token_classification")},
    ),
    key_names=KEY_NAMES,
    required_values={"attention_bias": (False,), "mlp_bias": (False,), "tie_word_embeddings": (False,)},
    ignored_keys=frozenset("pretraining_tp use_cache mask_token_id".split()),
    read_config=_read_config,
    write_config=write_rotary,
    token_id_keys={"bos_token_id": "cls", "eos_token_id": "sep"},
)
