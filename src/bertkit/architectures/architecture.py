"""The record of an architecture: all that distinguishes one ``model_type`` from another outside its layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from bertkit.architectures.tensor_names import TensorNames
from bertkit.heads import KINDS, SiameseClassificationHead, VectorClassificationHead
from bertkit.transformer import Encoder, PreparedEncoder

Content = dict[str, Any]
"""The content of a ``config.json``."""

_CLASS_NAMES = {  # model kind -> how the name of its published class ends
    "encoder": "Model",
    "pretraining": "ForPreTraining",
    "masked_lm": "ForMaskedLM",
    "next_sentence": "ForNextSentencePrediction",
    "sequence_classification": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
    "replaced_tokens": "ForPreTraining",
    "vector_classification": "ForVectorClassification",  # our own: no published class computes it
}


class HeadOptions(NamedTuple):
    """What a head is built with, in addition to the config of the encoder."""

    num_labels: int = 2  # outputs of a head of HEADS_WITH_LABELS
    dropout_prob: float | None = None  # before a classifier in training; None: the default of the architecture
    pooling: str = "mean"  # how the vectors are made that vector_classification takes
    num_vectors: int = 1  # sentence vectors that it takes: 2 for pairs of texts
    siamese_width: int | None = None  # of the sentence vectors of pairs, for the siamese form of that head


class Head(NamedTuple):
    """How an architecture builds a head, and the vectors that it takes."""

    build: Callable[[Any, HeadOptions], nn.Module]
    input: Callable[[Any], str]  # of a config: "tokens", or one vector for each sequence by a name of POOLINGS


@dataclass(frozen=True)
class Architecture:
    """One ``model_type``.

    Configs have BERT's spelling of the keys (`EncoderConfig`), so that all other code reads one spelling; a dataclass
    field with ``init=False`` is fixed by the architecture and not written to config.json.
    """

    model_type: str
    class_prefix: str  # the published classes are named by it: "Bert" + "ForMaskedLM"
    config: type[Any]
    encoder: Callable[..., Encoder]  # (config, with_pooler=bool)
    prepare: Callable[[Any, str], PreparedEncoder]  # (encoder, precision)
    heads: Mapping[str, Head]
    names: TensorNames
    unsupported_precisions: tuple[str, ...] = ()
    key_names: Mapping[str, str] = field(default_factory=dict)  # config fields that config.json spells otherwise
    required_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # keys that change the numbers, with
    # the values that the encoder computes; the first is written
    ignored_keys: frozenset[str] = frozenset()  # keys that do not change the numbers
    read_config: Callable[[Content, Path], Content] = lambda content, path: content  # to the fields of `config`
    write_config: Callable[[Content], Content] = lambda content: content  # the other way
    token_id_keys: Mapping[str, str] = field(default_factory=dict)  # keys of special tokens besides pad_token_id, by
    # role: {"cls_token_id": "cls"}
    initial_cutoff: Callable[[Any], float] = lambda config: 2.0  # of a config: standard deviations beyond which initial
    # weights are drawn again
    num_stored_layers: Callable[[Any], int] = lambda config: config.num_hidden_layers  # of a config: with weights
    causal_class: str | None = None  # the published class of left-to-right language models; None: there is none
    scaled_layers: tuple[str, ...] = ()  # linear layers whose initial standard deviation is divided by the root of
    # twice the number of layers

    @property
    def has_pooler(self) -> bool:
        return "pooler" in self.names.signature_tensors

    def reads_pooler(self, head: str, config: Any) -> bool:
        """True if a head takes the pooler's output."""
        return head in self.heads and self.heads[head].input(config) == "pooler"

    def published_classes(self) -> dict[str, str]:
        """Names of the published classes, each with its model kind."""
        causal = {} if self.causal_class is None else {self.causal_class: "masked_lm"}
        return causal | {
            self.class_prefix + ending: kind
            for kind, ending in _CLASS_NAMES.items()
            if set(KINDS[kind]) <= self.heads.keys()
        }


def tokens(config: Any) -> str:
    """`Head.input` of heads that take the hidden state of every token."""
    return "tokens"


def pooler(config: Any) -> str:
    """`Head.input` of heads that take the pooler's output."""
    return "pooler"


def _over_vectors(config: Any, options: HeadOptions) -> nn.Module:
    if options.siamese_width is not None:
        return SiameseClassificationHead(options.siamese_width, options.num_labels)
    return VectorClassificationHead(config, options.num_labels, options.pooling, options.num_vectors)


VECTOR_CLASSIFICATION = Head(_over_vectors, tokens)
"""The head that every architecture can have."""
