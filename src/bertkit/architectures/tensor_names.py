"""Our parameter names to the published ones: those of transformers' classes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PROJECTION = "projection."
"""How the names of the parameters begin that are between pooled hidden states and sentence vectors."""


@dataclass(frozen=True)
class TensorNames:
    """How the tensors of an architecture are named in published folders."""

    prefix: str  # before the names of the encoder's tensors, where the folder also holds heads
    encoder_parts: tuple[str, ...]  # how those names continue
    head_parts: tuple[str, ...]  # how the names of the heads' tensors begin
    rules: list[tuple[str, str]]  # pattern of ours -> published; the first that matches applies
    signature_tensors: Mapping[str, str]  # head, or "pooler" -> the tensor whose presence shows it
    classifiers: Mapping[str, tuple[str, ...]]  # the same for heads that share a tensor name: tensor -> possible heads;
    # the first tensor that is stored applies
    tied: Mapping[str, str] = field(default_factory=dict)  # published copies of other tensors; ours hold one
    buffers: frozenset[str] = frozenset()  # constants that old versions stored among the weights
    old_names: tuple[tuple[str, str], ...] = ()  # pattern of another published spelling -> the one used here
    unused_parts: tuple[str, ...] = ()  # how names of tensors begin that some folders hold and no head uses
    buffers_like: str = ""  # pattern of the names of further such constants, one for each layer; "": none
    transposed: str = ""  # pattern of the names of matrices that are stored transposed; "": none
    shared_parts: tuple[str, ...] = ()  # prefix of the layers that all heads share; a new head copies them from a
    # stored one

    @property
    def classifier_heads(self) -> set[str]:
        """Heads that exclude each other in a published folder."""
        return {head for heads in self.classifiers.values() for head in heads}

    def is_constant(self, stored: str) -> bool:
        """True if a stored tensor is one of the constants that hold nothing learned."""
        return stored in self.buffers or bool(self.buffers_like and re.match(self.buffers_like, stored))

    def is_transposed(self, stored: str) -> bool:
        """True if a matrix is stored with its axes the other way round than ours."""
        return bool(self.transposed and re.match(self.transposed, stored))

    def published(self, name: str) -> str:
        """The published name of a parameter of `Network`, as in a model with heads (the encoder's have the prefix).

        Those of the projection have no other name; their files are in the folders of their layers.

        >>> from bertkit.architectures import ARCHITECTURES
        >>> ARCHITECTURES["bert"].names.published("encoder.layers.3.attention.query.weight")
        'bert.encoder.layer.3.attention.self.query.weight'
        >>> ARCHITECTURES["modernbert"].names.published("encoder.layers.3.attention.query_key_value.weight")
        'model.layers.3.attn.Wqkv.weight'
        """
        if name.startswith(PROJECTION):
            return name
        for pattern, replacement in self.rules:
            if re.match(pattern, name):
                return re.sub(pattern, replacement, name, count=1)
        raise KeyError(name)

    def canonical(self, stored: str, *, has_prefix: bool) -> str:
        """A stored name in the one spelling used here.

        Replaced are gamma and beta (TensorFlow's names of the weight and bias of layer normalization); added is the
        prefix, where an encoder is stored without it.
        """
        name = re.sub(r"\.LayerNorm\.gamma$", ".LayerNorm.weight", stored)
        name = re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)
        for pattern, replacement in self.old_names:
            name = re.sub(pattern, replacement, name)
        return self.prefix + name if not has_prefix and name.startswith(self.encoder_parts) else name


def module_of(part: str) -> str:
    """The path in `Network` of a head, or of "pooler"."""
    return "encoder.pooler" if part == "pooler" else f"heads.{part}"


def bert_rules(prefix: str) -> list[tuple[str, str]]:
    """The names of BERT's encoder under another prefix."""
    return [
        (r"encoder\.embeddings\.norm\.", rf"{prefix}embeddings.LayerNorm."),
        (r"encoder\.embeddings\.(word|position|token_type)\.", rf"{prefix}embeddings.\1_embeddings."),
        (r"encoder\.layers\.(\d+)\.attention\.(query|key|value)\.", rf"{prefix}encoder.layer.\1.attention.self.\2."),
        (r"encoder\.layers\.(\d+)\.attention\.output\.", rf"{prefix}encoder.layer.\1.attention.output.dense."),
        (r"encoder\.layers\.(\d+)\.attention_norm\.", rf"{prefix}encoder.layer.\1.attention.output.LayerNorm."),
        (r"encoder\.layers\.(\d+)\.feed_forward\.expand\.", rf"{prefix}encoder.layer.\1.intermediate.dense."),
        (r"encoder\.layers\.(\d+)\.feed_forward\.project\.", rf"{prefix}encoder.layer.\1.output.dense."),
        (r"encoder\.layers\.(\d+)\.feed_forward_norm\.", rf"{prefix}encoder.layer.\1.output.LayerNorm."),
        (r"encoder\.pooler\.", rf"{prefix}pooler."),
    ]
