"""DistilBERT (Sanh et al. 2019): BERT's layers without token types and pooler, with half as many layers."""

from dataclasses import dataclass, field, replace
from typing import Self

from bertkit.architectures.architecture import Architecture, Head, HeadOptions, tokens
from bertkit.architectures.tensor_names import TensorNames
from bertkit.heads.classification import ClassificationHead, DenseClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.transformer import BertConfig, Encoder
from bertkit.transformer.config_checks import check_probabilities


@dataclass(frozen=True)
class DistilBertConfig(BertConfig):
    """Defaults are DistilBERT base (Sanh et al. 2019, and transformers' ``DistilBertConfig``)."""

    num_hidden_layers: int = 6  # encoder layers
    type_vocab_size: int = field(default=0, init=False)
    layer_norm_eps: float = field(default=1e-12, init=False)
    seq_classif_dropout: float = 0.2  # dropout before the classifier of sequences and choices, in training
    qa_dropout: float = 0.1  # the same for question answering

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probabilities(self, "seq_classif_dropout", "qa_dropout")

    @classmethod
    def of_size(cls, size: str, **changes: int | float | str) -> Self:
        """As `BertConfig.of_size`, with half as many layers."""
        config = super().of_size(size)
        return replace(config, **{"num_hidden_layers": config.num_hidden_layers // 2} | changes)

    @property
    def attention_output_dropout_prob(self) -> float:
        return 0.0


def _probability(options: HeadOptions, default: float) -> float:
    return default if options.dropout_prob is None else options.dropout_prob


def _sequences(config: DistilBertConfig, options: HeadOptions) -> DenseClassificationHead:
    dropout_prob = _probability(options, config.seq_classif_dropout)
    return DenseClassificationHead(config, options.num_labels, dropout_prob, "relu")


def _tokens(config: DistilBertConfig, options: HeadOptions) -> ClassificationHead:
    return ClassificationHead(config, options.num_labels, _probability(options, config.hidden_dropout_prob))


DISTILBERT = Architecture(
    model_type="distilbert",
    class_prefix="DistilBert",
    config=DistilBertConfig,
    encoder=Encoder,
    heads={
        "masked_lm": Head(lambda config, options: MaskedLMHead(config), tokens),
        "sequence_classification": Head(_sequences, lambda config: "cls"),
        "token_classification": Head(_tokens, tokens),
        "question_answering": Head(lambda config, options: ClassificationHead(config, 2, config.qa_dropout), tokens),
        "multiple_choice": Head(
            lambda config, options: _sequences(config, options._replace(num_labels=1)), lambda config: "cls"
        ),
    },
    names=TensorNames(
        prefix="distilbert.",
        encoder_parts=("embeddings.", "transformer."),
        head_parts=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
        rules=[
            (r"encoder\.embeddings\.norm\.", "distilbert.embeddings.LayerNorm."),
            (r"encoder\.embeddings\.(word|position)\.", r"distilbert.embeddings.\1_embeddings."),
            (r"encoder\.layers\.(\d+)\.attention\.query\.", r"distilbert.transformer.layer.\1.attention.q_lin."),
            (r"encoder\.layers\.(\d+)\.attention\.key\.", r"distilbert.transformer.layer.\1.attention.k_lin."),
            (r"encoder\.layers\.(\d+)\.attention\.value\.", r"distilbert.transformer.layer.\1.attention.v_lin."),
            (r"encoder\.layers\.(\d+)\.attention\.output\.", r"distilbert.transformer.layer.\1.attention.out_lin."),
            (r"encoder\.layers\.(\d+)\.attention_norm\.", r"distilbert.transformer.layer.\1.sa_layer_norm."),
            (r"encoder\.layers\.(\d+)\.feed_forward\.expand\.", r"distilbert.transformer.layer.\1.ffn.lin1."),
            (r"encoder\.layers\.(\d+)\.feed_forward\.project\.", r"distilbert.transformer.layer.\1.ffn.lin2."),
            (r"encoder\.layers\.(\d+)\.feed_forward_norm\.", r"distilbert.transformer.layer.\1.output_layer_norm."),
            (r"heads\.masked_lm\.dense\.", "vocab_transform."),
            (r"heads\.masked_lm\.norm\.", "vocab_layer_norm."),
            (r"heads\.masked_lm\.bias$", "vocab_projector.bias"),
            (r"heads\.question_answering\.classifier\.", "qa_outputs."),
            (r"heads\.\w+\.dense\.", "pre_classifier."),
            (r"heads\.\w+\.classifier\.", "classifier."),
        ],
        signature_tensors={
            "masked_lm": "vocab_transform.weight",
            "question_answering": "qa_outputs.weight",
        },
        classifiers={
            "pre_classifier.weight": ("sequence_classification", "multiple_choice"),
            "classifier.weight": ("token_classification",),
        },
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        buffers=frozenset({"distilbert.embeddings.position_ids"}),
    ),
    key_names={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    ignored_keys=frozenset({"sinusoidal_pos_embds", "tie_weights_"}),
)
