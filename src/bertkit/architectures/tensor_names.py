"""Translate bertkit's parameter names to published ones, those of transformers' classes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PROJECTION = "projection."
"""Prefix of the parameters between pooled hidden states and sentence vectors."""


_VECTOR_CLASSIFIER = "vector_classifier."
"""Prefix of the tensors of vector_classification."""


@dataclass(frozen=True)
class TensorNames:
    """Tensor names of an architecture in published folders; those of vector_classification, a head that every
    architecture has, are added."""

    prefix: str  # prefix of encoder tensors in folders that also hold heads
    encoder_parts: tuple[str, ...]  # first parts of encoder tensor names, after the prefix
    head_parts: tuple[str, ...]  # first parts of head tensor names
    rules: list[tuple[str, str]]  # pattern of bertkit's name -> published name; the first match applies
    signature_tensors: Mapping[str, str]  # head, or "pooler" -> the tensor whose presence indicates it
    classifiers: Mapping[str, tuple[str, ...]]  # for heads that share a tensor name: tensor -> possible heads; the
    # first tensor that is stored applies
    tied: Mapping[str, str] = field(default_factory=dict)  # published copy -> original, which bertkit keeps once
    buffers: frozenset[str] = frozenset()  # constants that old versions stored among the weights
    old_names: tuple[tuple[str, str], ...] = ()  # pattern of another published name -> the one used here
    unused_parts: tuple[str, ...] = ()  # prefixes of tensors in some folders that no head uses
    buffers_like: str = ""  # pattern of the names of further such constants, one for each layer; "": none
    transposed: str = ""  # pattern of the names of matrices that are stored transposed; "": none
    shared_parts: tuple[str, ...] = ()  # prefix of the layers that all heads share; a new head copies them from a
    # stored one

    def __post_init__(self) -> None:
        object.__setattr__(self, "head_parts", (*self.head_parts, _VECTOR_CLASSIFIER))
        rule = (r"heads\.vector_classification\.classifier\.", _VECTOR_CLASSIFIER)
        object.__setattr__(self, "rules", [rule, *self.rules])
        signature = {"vector_classification": f"{_VECTOR_CLASSIFIER}weight"}
        object.__setattr__(self, "signature_tensors", {**self.signature_tensors, **signature})

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
        """The published name of a parameter of `Network`, as in a model with heads, where encoder names have the
        prefix.

        Projection parameters keep their names; their files are in the folders of their layers.

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
        """The published name of a stored tensor, in the one form used here.

        gamma and beta, TensorFlow's names in layer normalization, become weight and bias. The prefix is added to an
        encoder stored without it.
        """
        name = re.sub(r"\.LayerNorm\.gamma$", ".LayerNorm.weight", stored)
        name = re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)
        for pattern, replacement in self.old_names:
            name = re.sub(pattern, replacement, name)
        return self.prefix + name if not has_prefix and name.startswith(self.encoder_parts) else name


def module_of(part: str) -> str:
    """Path of a head, or of "pooler", in `Network`."""
    return "encoder.pooler" if part == "pooler" else f"heads.{part}"


def bert_rules(prefix: str) -> list[tuple[str, str]]:
    """Rules for BERT's encoder names under another prefix."""
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
