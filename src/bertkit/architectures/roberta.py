"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020).

BERT's layers. Positions count from the row after the padding row, and a sequence classifier is two layers over
the first token. The three differ in names and tokenizers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bertkit.architectures.architecture import (
    Architecture,
    Content,
    Head,
    HeadOptions,
    pooler,
    tokens,
)
from bertkit.architectures.tensor_names import TensorNames, bert_rules
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member
from bertkit.heads.classification import ClassificationHead, DenseClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.transformer import BertConfig, Encoder


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """Defaults are RoBERTa base as published (Liu et al. 2019)."""

    may_be_zero: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "pad_token_id")

    vocab_size: int = 50_265  # rows of the word embedding
    type_vocab_size: int = 1  # segments; with 1 every token has type 0
    layer_norm_eps: float = 1e-5  # added to the variance in layer normalization
    pad_token_id: int = 1  # positions start at the row after this one

    @property
    def first_position(self) -> int:
        return self.pad_token_id + 1


@dataclass(frozen=True)
class XlmRobertaConfig(RobertaConfig):
    """Defaults are XLM-R base as published (Conneau et al. 2020)."""

    vocab_size: int = 250_002  # rows of the word embedding


@dataclass(frozen=True)
class CamembertConfig(RobertaConfig):
    """Defaults are CamemBERT base as published (Martin et al. 2020)."""

    vocab_size: int = 32_005  # rows of the word embedding


def dropout_prob(config: BertConfig, options: HeadOptions) -> float:
    """Probability of dropout before a classifier."""
    return config.hidden_dropout_prob if options.dropout_prob is None else options.dropout_prob


def sequence_classifier(config: BertConfig, options: HeadOptions, activation: str) -> DenseClassificationHead:
    """Two layers over the first token, with dropout before each."""
    probability = dropout_prob(config, options)
    return DenseClassificationHead(config, options.num_labels, probability, activation, probability)


def classifier(config: BertConfig, options: HeadOptions) -> ClassificationHead:
    """One layer with dropout before it."""
    return ClassificationHead(config, options.num_labels, dropout_prob(config, options))


def first_token(config: Any) -> str:
    """`Head.input` for heads over the hidden state of the first token."""
    return "cls"


HEADS = {
    "masked_lm": Head(lambda config, options: MaskedLMHead(config, "gelu"), tokens),
    "sequence_classification": Head(lambda config, options: sequence_classifier(config, options, "tanh"), first_token),
    "token_classification": Head(classifier, tokens),
    "question_answering": Head(lambda config, options: ClassificationHead(config, 2, 0.0), tokens),
    "multiple_choice": Head(lambda config, options: classifier(config, options._replace(num_labels=1)), pooler),
}
"""RoBERTa's heads; MPNet has the same."""

HEAD_RULES = [
    (r"heads\.masked_lm\.dense\.", "lm_head.dense."),
    (r"heads\.masked_lm\.norm\.", "lm_head.layer_norm."),
    (r"heads\.masked_lm\.bias$", "lm_head.bias"),
    (r"heads\.question_answering\.classifier\.", "qa_outputs."),
    (r"heads\.sequence_classification\.dense\.", "classifier.dense."),
    (r"heads\.sequence_classification\.classifier\.", "classifier.out_proj."),
    (r"heads\.(token_classification|multiple_choice)\.classifier\.", "classifier."),
]
"""Tensor names of these heads."""

HEAD_SIGNATURES = {
    "masked_lm": "lm_head.dense.weight",
    "question_answering": "qa_outputs.weight",
}

HEAD_PARTS = ("lm_head.", "classifier.", "qa_outputs.")

HEAD_CLASSIFIERS = {
    "classifier.out_proj.weight": ("sequence_classification",),
    "classifier.weight": ("token_classification", "multiple_choice"),
}


_CLASS_DEFAULTS = {  # for keys absent from config.json, as in transformers' RobertaConfig, unlike the published models
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 1,
}


def without_first_positions(content: Content, path: Path, first_position: int) -> Content:
    """Replace the number of rows of the position table by the number of positions that a text can use.

    Raises:
        CheckpointError: fewer positions than a text needs.
    """
    rows = member(content, "max_position_embeddings", int, path, 0)
    if rows - first_position < 3:
        raise CheckpointError(
            f"{path}: max_position_embeddings={rows} leaves {max(0, rows - first_position)} positions for a text, "
            f"whose first is number {first_position}: expected at least 3"
        )
    return content | {"max_position_embeddings": rows - first_position}


def with_first_positions(content: Content, first_position: int) -> Content:
    """The inverse of `without_first_positions`."""
    return content | {"max_position_embeddings": content["max_position_embeddings"] + first_position}


def _read_config(content: Content, path: Path) -> Content:
    content = _CLASS_DEFAULTS | content
    return without_first_positions(content, path, member(content, "pad_token_id", int, path, 0) + 1)


def _write_config(content: Content) -> Content:
    return with_first_positions(content, content["pad_token_id"] + 1)


def _record(model_type: str, class_prefix: str, config: type[RobertaConfig]) -> Architecture:
    return Architecture(
        model_type=model_type,
        class_prefix=class_prefix,
        config=config,
        encoder=Encoder,
        heads=HEADS,
        names=TensorNames(
            prefix="roberta.",
            encoder_parts=("embeddings.", "encoder.", "pooler."),
            head_parts=HEAD_PARTS,
            rules=[*bert_rules("roberta."), *HEAD_RULES],
            signature_tensors={"pooler": "roberta.pooler.dense.weight", **HEAD_SIGNATURES},
            classifiers=HEAD_CLASSIFIERS,
            tied={
                "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
                "lm_head.decoder.bias": "lm_head.bias",
            },
            buffers=frozenset({"roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"}),
        ),
        required_values={"position_embedding_type": ("absolute",)},
        ignored_keys=frozenset({"adapters"}),
        read_config=_read_config,
        write_config=_write_config,
        token_id_keys={"bos_token_id": "cls", "eos_token_id": "sep"},
    )


ROBERTA = _record("roberta", "Roberta", RobertaConfig)
XLM_ROBERTA = _record("xlm-roberta", "XLMRoberta", XlmRobertaConfig)
CAMEMBERT = _record("camembert", "Camembert", CamembertConfig)
