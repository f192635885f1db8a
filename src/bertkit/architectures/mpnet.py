"""MPNet (Song et al. 2020): RoBERTa's heads and positions, and attention scores with a bias for each relative
distance."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from bertkit.architectures.architecture import Architecture, Content
from bertkit.architectures.roberta import (
    HEAD_CLASSIFIERS,
    HEAD_PARTS,
    HEAD_RULES,
    HEAD_SIGNATURES,
    HEADS,
    with_first_positions,
    without_first_positions,
)
from bertkit.architectures.tensor_names import TensorNames, bert_rules
from bertkit.transformer import BertConfig, DistanceBias, LayerConfig, RelativeBiasEncoder

_FIRST_POSITION = 2  # for any pad_token_id: transformers' MPNetEmbeddings fixes it


@dataclass(frozen=True)
class MpnetConfig(BertConfig):
    """Defaults are MPNet base as published (Song et al. 2020)."""

    may_be_decoder: ClassVar[bool] = False

    vocab_size: int = 30_527  # rows of the word embedding
    type_vocab_size: int = field(default=0, init=False)
    layer_norm_eps: float = 1e-5  # added to the variance in layer normalization

    @property
    def first_position(self) -> int:
        return _FIRST_POSITION

    def layer(self, number: int) -> LayerConfig:
        return replace(super().layer(number), positions=DistanceBias())


def _read_config(content: Content, path: Path) -> Content:
    content = {"max_position_embeddings": 512, "layer_norm_eps": 1e-12} | content  # transformers' MPNetConfig
    return without_first_positions(content, path, _FIRST_POSITION)


_ATTENTION = r"encoder\.layers\.(\d+)\.attention"

MPNET = Architecture(
    model_type="mpnet",
    class_prefix="MPNet",
    config=MpnetConfig,
    encoder=RelativeBiasEncoder,
    heads=HEADS,
    names=TensorNames(
        prefix="mpnet.",
        encoder_parts=("embeddings.", "encoder.", "pooler."),
        head_parts=HEAD_PARTS,
        rules=[
            (rf"{_ATTENTION}\.query\.", r"mpnet.encoder.layer.\1.attention.attn.q."),
            (rf"{_ATTENTION}\.key\.", r"mpnet.encoder.layer.\1.attention.attn.k."),
            (rf"{_ATTENTION}\.value\.", r"mpnet.encoder.layer.\1.attention.attn.v."),
            (rf"{_ATTENTION}\.output\.", r"mpnet.encoder.layer.\1.attention.attn.o."),
            (rf"{_ATTENTION}_norm\.", r"mpnet.encoder.layer.\1.attention.LayerNorm."),
            (r"encoder\.relative_attention_bias\.", "mpnet.encoder.relative_attention_bias."),
            *bert_rules("mpnet."),
            *HEAD_RULES,
        ],
        signature_tensors={"pooler": "mpnet.pooler.dense.weight", **HEAD_SIGNATURES},
        classifiers=HEAD_CLASSIFIERS,
        tied={
            "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        buffers=frozenset({"mpnet.embeddings.position_ids"}),
    ),
    required_values={"relative_attention_num_buckets": (32,)},
    read_config=_read_config,
    write_config=lambda content: with_first_positions(content, _FIRST_POSITION),
    token_id_keys={"bos_token_id": "cls", "eos_token_id": "sep"},
    embedding_parts=("embeddings.", "relative_attention_bias."),
)
