"""ELECTRA (Clark et al. 2020): BERT's layers as a detector of replaced tokens, and the generator that replaces them."""

from dataclasses import dataclass

from bertkit.architectures.architecture import Architecture, Head, HeadOptions, tokens
from bertkit.architectures.roberta import classifier, first_token, sequence_classifier
from bertkit.architectures.tensor_names import TensorNames, bert_rules
from bertkit.heads.classification import ClassificationHead, DenseClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.heads.replaced_tokens import ReplacedTokensHead
from bertkit.transformer import BertConfig, Encoder
from bertkit.transformer.config_checks import check_probabilities


@dataclass(frozen=True)
class ElectraConfig(BertConfig):
    """Defaults are ELECTRA small (Clark et al. 2020, appendix A, and transformers' ``ElectraConfig``)."""

    hidden_size: int = 256  # width of every hidden state
    num_attention_heads: int = 4  # must divide hidden_size
    intermediate_size: int = 1_024  # width inside the feed-forward network
    embedding_size: int = 128  # width of the embeddings; a linear layer brings them to hidden_size if that differs
    summary_last_dropout: float = 0.1  # dropout before the classifier of choices, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probabilities(self, "summary_last_dropout")

    @property
    def embedding_width(self) -> int:
        return self.embedding_size

    @property
    def projects_embeddings(self) -> bool:
        return self.embedding_size != self.hidden_size


def _choices(config: ElectraConfig, options: HeadOptions) -> DenseClassificationHead:
    return DenseClassificationHead(config, 1, config.summary_last_dropout, "gelu")


ELECTRA = Architecture(
    model_type="electra",
    class_prefix="Electra",
    config=ElectraConfig,
    encoder=Encoder,
    heads={
        "replaced_tokens": Head(lambda config, options: ReplacedTokensHead(config), tokens),
        "masked_lm": Head(lambda config, options: MaskedLMHead(config, "gelu"), tokens),
        "sequence_classification": Head(
            lambda config, options: sequence_classifier(config, options, "gelu"), first_token
        ),
        "token_classification": Head(classifier, tokens),
        "question_answering": Head(lambda config, options: ClassificationHead(config, 2, 0.0), tokens),
        "multiple_choice": Head(_choices, first_token),
    },
    names=TensorNames(
        prefix="electra.",
        encoder_parts=("embeddings.", "embeddings_project.", "encoder."),
        head_parts=(
            "discriminator_predictions.",
            "generator_predictions.",
            "generator_lm_head.",
            "sequence_summary.",
            "classifier.",
            "qa_outputs.",
        ),
        rules=[
            (r"encoder\.embeddings\.project\.", "electra.embeddings_project."),
            *bert_rules("electra."),
            (r"heads\.replaced_tokens\.dense\.", "discriminator_predictions.dense."),
            (r"heads\.replaced_tokens\.classifier\.", "discriminator_predictions.dense_prediction."),
            (r"heads\.masked_lm\.dense\.", "generator_predictions.dense."),
            (r"heads\.masked_lm\.norm\.", "generator_predictions.LayerNorm."),
            (r"heads\.masked_lm\.bias$", "generator_lm_head.bias"),
            (r"heads\.question_answering\.classifier\.", "qa_outputs."),
            (r"heads\.sequence_classification\.dense\.", "classifier.dense."),
            (r"heads\.sequence_classification\.classifier\.", "classifier.out_proj."),
            (r"heads\.multiple_choice\.dense\.", "sequence_summary.summary."),
            (r"heads\.(token_classification|multiple_choice)\.classifier\.", "classifier."),
        ],
        signature_tensors={
            "replaced_tokens": "discriminator_predictions.dense.weight",
            "masked_lm": "generator_predictions.dense.weight",
            "question_answering": "qa_outputs.weight",
        },
        classifiers={
            "classifier.out_proj.weight": ("sequence_classification",),
            "sequence_summary.summary.weight": ("multiple_choice",),
            "classifier.weight": ("token_classification",),
        },
        tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        buffers=frozenset({"electra.embeddings.position_ids", "electra.embeddings.token_type_ids"}),
    ),
    required_values={
        "position_embedding_type": ("absolute",),
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
)
