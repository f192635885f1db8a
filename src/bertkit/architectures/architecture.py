"""The record of an architecture: everything specific to one ``model_type``, apart from its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.architectures.tensor_names import TensorNames
from bertkit.heads import KINDS, SiameseClassificationHead, VectorClassificationHead
from bertkit.transformer import Encoder
from bertkit.transformer.modules import nn

Content = dict[str, Any]
"""The parsed content of a ``config.json``."""

_CLASS_NAMES = {  # model kind -> suffix of the published class name
    "encoder": "Model",
    "pretraining": "ForPreTraining",
    "masked_lm": "ForMaskedLM",
    "next_sentence": "ForNextSentencePrediction",
    "sequence_classification": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
    "replaced_tokens": "ForPreTraining",
    "vector_classification": "ForVectorClassification",  # bertkit's own; there is no published class
}


class HeadOptions(NamedTuple):
    """Options of a head, in addition to the encoder's config."""

    num_labels: int = 2  # number of outputs of a head in HEADS_WITH_LABELS
    dropout_prob: float | None = None  # dropout before a classifier, in training; None: the architecture's default
    pooling: str = "mean"  # how hidden states become the input of vector_classification
    num_vectors: int = 1  # number of sentence vectors in that input: 2 for pairs of texts
    siamese_width: int | None = None  # width of the sentence vectors, for the siamese form of that head


class Head(NamedTuple):
    """The constructor of a head, and the kind of its input."""

    build: Callable[[Any, HeadOptions], nn.Module]
    input: Callable[[Any], str]  # config -> "tokens", or a name from POOLINGS: one vector per sequence


@dataclass(frozen=True)
class Architecture:
    """Everything specific to one ``model_type``: config keys, encoder, heads, tensor names.

    Configs use BERT's names of the keys (`EncoderConfig`), so that all other code handles one set of names. A dataclass
    field with ``init=False`` is fixed by the architecture and not written to config.json. vector_classification is
    added to ``heads``.
    """

    model_type: str
    class_prefix: str  # prefix of the published class names: "Bert" + "ForMaskedLM"
    config: type[Any]  # of this record only: `architecture_of` looks records up by it
    encoder: Callable[..., Encoder]  # (config, with_pooler=bool)
    heads: Mapping[str, Head]
    names: TensorNames
    key_names: Mapping[str, str] = field(default_factory=dict)  # config field -> its key in config.json, where the two
    # differ
    required_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # keys that affect the outputs, with
    # the supported values; the first is written to config.json
    ignored_keys: frozenset[str] = frozenset()  # keys that do not affect the outputs
    read_config: Callable[[Content, Path], Content] = lambda content, path: content  # config.json -> fields of `config`
    write_config: Callable[[Content], Content] = lambda content: content  # the inverse of read_config
    token_id_keys: Mapping[str, str] = field(default_factory=dict)  # key of a special token other than pad_token_id ->
    # its role: {"cls_token_id": "cls"}
    initial_cutoff: Callable[[Any], float] = lambda config: 2.0  # number of standard deviations beyond which initial
    # weights are drawn again
    num_stored_layers: Callable[[Any], int] = lambda config: config.num_hidden_layers  # number of layers with weights
    alternates_layers: bool = False  # a layer's position says what it attends to, so none can be left out
    embedding_parts: tuple[str, ...] = ("embeddings.",)  # prefixes of the encoder's parameters below its layers, with
    # tables of relative positions, which every layer reads: they freeze and learn as the embeddings do
    class_names: Mapping[str, str] = field(default_factory=dict)  # model kind -> its published class, where the name is
    # another
    causal_class: str | None = None  # published class of causal language models, if any
    scaled_layers: tuple[str, ...] = ()  # linear layers whose initial standard deviation is divided by the root of
    # twice the number of layers

    def __post_init__(self) -> None:
        vectors = Head(_over_vectors, tokens)
        object.__setattr__(self, "heads", {**self.heads, "vector_classification": vectors})

    @property
    def has_pooler(self) -> bool:
        return "pooler" in self.names.signature_tensors

    def reads_pooler(self, head: str, config: Any) -> bool:
        """Whether the input of a head is the pooler's output."""
        return head in self.heads and self.heads[head].input(config) == "pooler"

    def published_classes(self) -> dict[str, str]:
        """Published class name -> model kind."""
        causal = {} if self.causal_class is None else {self.causal_class: "masked_lm"}
        return causal | {
            self.class_names.get(kind, self.class_prefix + ending): kind
            for kind, ending in _CLASS_NAMES.items()
            if set(KINDS[kind]) <= self.heads.keys()
        }


def tokens(config: Any) -> str:
    """`Head.input` for heads over the hidden state of every token."""
    return "tokens"


def pooler(config: Any) -> str:
    """`Head.input` for heads over the pooler's output."""
    return "pooler"


def _over_vectors(config: Any, options: HeadOptions) -> nn.Module:
    if options.siamese_width is not None:
        return SiameseClassificationHead(options.siamese_width, options.num_labels)
    return VectorClassificationHead(config, options.num_labels, options.pooling, options.num_vectors)
