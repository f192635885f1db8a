"""Nomic BERT (Nussbaum et al. 2024) and GTE (Zhang et al. 2024): one encoder, two sets of names."""

from typing import Any

from bertkit.architectures.architecture import Architecture, Head, HeadOptions, tokens
from bertkit.architectures.gated_config import (
    GTE_IGNORED_KEYS,
    NOMIC_IGNORED_KEYS,
    read_gte_config,
    read_nomic_config,
    write_rotary,
)
from bertkit.architectures.roberta import classifier, dropout_prob, first_token
from bertkit.architectures.tensor_names import TensorNames
from bertkit.heads.classification import DenseClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.transformer import Encoder, GteConfig, NomicBertConfig


def _sequences(config: NomicBertConfig, options: HeadOptions) -> DenseClassificationHead:
    return DenseClassificationHead(config, options.num_labels, dropout_prob(config, options), "tanh")


def _heads(activation: str | None) -> dict[str, Head]:
    return {
        "masked_lm": Head(lambda config, options: MaskedLMHead(config, activation), tokens),
        "sequence_classification": Head(_sequences, first_token),
        "token_classification": Head(classifier, tokens),
    }


def _classifier_rules(prefix: str) -> list[tuple[str, str]]:
    return [
        (r"heads\.sequence_classification\.dense\.", f"{prefix}pooler.dense."),
        (r"heads\.(sequence_classification|token_classification)\.classifier\.", "classifier."),
    ]


_LAYER = r"encoder\.layers\.(\d+)\."
_CLASSIFIERS = {"classifier.weight": ("sequence_classification", "token_classification")}
_SHARED: dict[str, Any] = {"encoder": Encoder}

NOMIC_BERT = Architecture(
    model_type="nomic_bert",
    class_prefix="NomicBert",
    config=NomicBertConfig,
    heads=_heads(None),
    names=TensorNames(
        prefix="nomic_bert.",
        encoder_parts=("embeddings.", "emb_ln.", "encoder.", "pooler."),
        head_parts=("cls.", "classifier."),
        rules=[
            (r"encoder\.embeddings\.norm\.", "nomic_bert.emb_ln."),
            (r"encoder\.embeddings\.(word|token_type)\.", r"nomic_bert.embeddings.\1_embeddings."),
            (rf"{_LAYER}attention\.query_key_value\.", r"nomic_bert.encoder.layers.\1.attn.Wqkv."),
            (rf"{_LAYER}attention\.output\.", r"nomic_bert.encoder.layers.\1.attn.out_proj."),
            (rf"{_LAYER}attention_norm\.", r"nomic_bert.encoder.layers.\1.norm1."),
            (rf"{_LAYER}feed_forward\.expand\.", r"nomic_bert.encoder.layers.\1.mlp.fc11."),
            (rf"{_LAYER}feed_forward\.gate\.", r"nomic_bert.encoder.layers.\1.mlp.fc12."),
            (rf"{_LAYER}feed_forward\.project\.", r"nomic_bert.encoder.layers.\1.mlp.fc2."),
            (rf"{_LAYER}feed_forward_norm\.", r"nomic_bert.encoder.layers.\1.norm2."),
            (r"heads\.masked_lm\.dense\.", "cls.predictions.transform.dense."),
            (r"heads\.masked_lm\.norm\.", "cls.predictions.transform.layer_norm."),
            (r"heads\.masked_lm\.bias$", "cls.predictions.bias"),
            *_classifier_rules("nomic_bert."),
        ],
        signature_tensors={"masked_lm": "cls.predictions.transform.dense.weight"},
        classifiers=_CLASSIFIERS,
        tied={
            "cls.predictions.decoder.weight": "nomic_bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        old_names=((r"^bert\.", "nomic_bert."),),
        unused_parts=("nomic_bert.pooler.",),
    ),
    ignored_keys=NOMIC_IGNORED_KEYS,
    read_config=read_nomic_config,
    write_config=write_rotary,
    **_SHARED,
)

GTE = Architecture(
    model_type="gte",
    class_prefix="Gte",
    config=GteConfig,
    heads=_heads("gelu"),
    names=TensorNames(
        prefix="gte.",
        encoder_parts=("embeddings.", "encoder.", "pooler."),
        head_parts=("lm_head.", "classifier."),
        rules=[
            (r"encoder\.embeddings\.norm\.", "gte.embeddings.LayerNorm."),
            (r"encoder\.embeddings\.(word|token_type)\.", r"gte.embeddings.\1_embeddings."),
            (rf"{_LAYER}attention\.query_key_value\.", r"gte.encoder.layer.\1.attention.qkv_proj."),
            (rf"{_LAYER}attention\.output\.", r"gte.encoder.layer.\1.attention.o_proj."),
            (rf"{_LAYER}attention_norm\.", r"gte.encoder.layer.\1.attn_ln."),
            (rf"{_LAYER}feed_forward\.expand_and_gate\.", r"gte.encoder.layer.\1.mlp.up_gate_proj."),
            (rf"{_LAYER}feed_forward\.project\.", r"gte.encoder.layer.\1.mlp.down_proj."),
            (rf"{_LAYER}feed_forward_norm\.", r"gte.encoder.layer.\1.mlp_ln."),
            (r"heads\.masked_lm\.dense\.", "lm_head.dense."),
            (r"heads\.masked_lm\.norm\.", "lm_head.norm."),
            (r"heads\.masked_lm\.bias$", "lm_head.decoder.bias"),
            *_classifier_rules("gte."),
        ],
        signature_tensors={"masked_lm": "lm_head.dense.weight"},
        classifiers=_CLASSIFIERS,
        tied={"lm_head.decoder.weight": "gte.embeddings.word_embeddings.weight"},
        buffers=frozenset({"gte.embeddings.position_ids"}),
        old_names=((r"^new\.", "gte."),),
        unused_parts=("gte.pooler.",),
    ),
    ignored_keys=GTE_IGNORED_KEYS,
    read_config=read_gte_config,
    write_config=write_rotary,
    **_SHARED,
)
