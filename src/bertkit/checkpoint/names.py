"""Our parameter names to the published ones: those of transformers' BERT and ModernBERT classes."""

import re
from dataclasses import dataclass

from bertkit.transformer import AnyConfig, ModernBertConfig


@dataclass(frozen=True)
class Names:
    """How one kind of encoder, and what stands on it, is spelled in published directories."""

    model_type: str  # in config.json
    architectures: dict[str, str]  # published class -> model kind
    prefix: str  # before the names of the encoder's tensors, where heads stand beside them
    encoder_parts: tuple[str, ...]  # how those names go on
    head_parts: tuple[str, ...]  # how the names of heads' tensors begin
    rules: list[tuple[str, str]]  # pattern of ours -> published; the first that matches applies
    marks: dict[str, str]  # head -> the tensor whose presence shows it
    tied: dict[str, str]  # published copies of other tensors; ours hold one
    pooler_mark: str | None = None
    classifier_mark: str = "classifier.weight"
    classifier_heads: tuple[str, ...] = ("sequence_classification", "token_classification")
    buffers: frozenset[str] = frozenset()  # constants that old versions stored among the weights
    shared_parts: tuple[str, ...] = ()  # tensors that every head begins with: a new one takes over those of another

    def published(self, name: str) -> str:
        """The published name of a parameter of `Network`, as in a model with heads (the encoder's have the prefix).

        >>> BERT.published("encoder.layers.3.attention.query.weight")
        'bert.encoder.layer.3.attention.self.query.weight'
        >>> MODERNBERT.published("encoder.layers.3.attention.query_key_value.weight")
        'model.layers.3.attn.Wqkv.weight'
        """
        for pattern, replacement in self.rules:
            if re.match(pattern, name):
                return re.sub(pattern, replacement, name, count=1)
        raise KeyError(name)

    def canonical(self, stored: str, *, has_prefix: bool) -> str:
        """A stored name with the spellings of old and bare checkpoints made one: gamma/beta (as TensorFlow called the
        weight and bias of layer normalization), and encoders stored without the prefix."""
        name = re.sub(r"\.LayerNorm\.gamma$", ".LayerNorm.weight", stored)
        name = re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)
        return self.prefix + name if not has_prefix and name.startswith(self.encoder_parts) else name


BERT = Names(
    model_type="bert",
    architectures={
        "BertModel": "encoder",
        "BertForPreTraining": "pretraining",
        "BertForMaskedLM": "masked_lm",
        "BertForNextSentencePrediction": "next_sentence",
        "BertForSequenceClassification": "sequence_classification",
        "BertForTokenClassification": "token_classification",
        "BertForQuestionAnswering": "question_answering",
        "BertForMultipleChoice": "multiple_choice",
        "BertForVectorClassification": "vector_classification",  # our own: no published class computes it
    },
    prefix="bert.",
    encoder_parts=("embeddings.", "encoder.", "pooler."),
    head_parts=("cls.", "classifier.", "qa_outputs.", "vector_classifier."),
    rules=[
        (r"encoder\.embeddings\.norm\.", "bert.embeddings.LayerNorm."),
        (r"encoder\.embeddings\.(word|position|token_type)\.", r"bert.embeddings.\1_embeddings."),
        (r"encoder\.layers\.(\d+)\.attention\.(query|key|value)\.", r"bert.encoder.layer.\1.attention.self.\2."),
        (r"encoder\.layers\.(\d+)\.attention\.output\.", r"bert.encoder.layer.\1.attention.output.dense."),
        (r"encoder\.layers\.(\d+)\.attention_norm\.", r"bert.encoder.layer.\1.attention.output.LayerNorm."),
        (r"encoder\.layers\.(\d+)\.feed_forward\.expand\.", r"bert.encoder.layer.\1.intermediate.dense."),
        (r"encoder\.layers\.(\d+)\.feed_forward\.project\.", r"bert.encoder.layer.\1.output.dense."),
        (r"encoder\.layers\.(\d+)\.feed_forward_norm\.", r"bert.encoder.layer.\1.output.LayerNorm."),
        (r"encoder\.pooler\.", "bert.pooler."),
        (r"heads\.masked_lm\.dense\.", "cls.predictions.transform.dense."),
        (r"heads\.masked_lm\.norm\.", "cls.predictions.transform.LayerNorm."),
        (r"heads\.masked_lm\.bias$", "cls.predictions.bias"),
        (r"heads\.next_sentence\.dense\.", "cls.seq_relationship."),
        (r"heads\.question_answering\.classifier\.", "qa_outputs."),
        (r"heads\.vector_classification\.classifier\.", "vector_classifier."),
        (r"heads\.(sequence_classification|token_classification|multiple_choice)\.classifier\.", "classifier."),
    ],
    marks={
        "masked_lm": "cls.predictions.transform.dense.weight",
        "next_sentence": "cls.seq_relationship.weight",
        "question_answering": "qa_outputs.weight",
        "vector_classification": "vector_classifier.weight",
    },
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    pooler_mark="bert.pooler.dense.weight",
    classifier_heads=("sequence_classification", "token_classification", "multiple_choice"),
    buffers=frozenset({"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"}),
)

MODERNBERT = Names(
    model_type="modernbert",
    architectures={
        "ModernBertModel": "encoder",
        "ModernBertForMaskedLM": "masked_lm",
        "ModernBertForSequenceClassification": "sequence_classification",
        "ModernBertForTokenClassification": "token_classification",
        "ModernBertForVectorClassification": "vector_classification",  # our own
    },
    prefix="model.",
    encoder_parts=("embeddings.", "layers.", "final_norm."),
    head_parts=("head.", "decoder.", "classifier.", "vector_classifier."),
    rules=[
        (r"encoder\.embeddings\.word\.", "model.embeddings.tok_embeddings."),
        (r"encoder\.embeddings\.norm\.", "model.embeddings.norm."),
        (r"encoder\.layers\.(\d+)\.attention_norm\.", r"model.layers.\1.attn_norm."),
        (r"encoder\.layers\.(\d+)\.attention\.query_key_value\.", r"model.layers.\1.attn.Wqkv."),
        (r"encoder\.layers\.(\d+)\.attention\.output\.", r"model.layers.\1.attn.Wo."),
        (r"encoder\.layers\.(\d+)\.feed_forward_norm\.", r"model.layers.\1.mlp_norm."),
        (r"encoder\.layers\.(\d+)\.feed_forward\.expand\.", r"model.layers.\1.mlp.Wi."),
        (r"encoder\.layers\.(\d+)\.feed_forward\.project\.", r"model.layers.\1.mlp.Wo."),
        (r"encoder\.final_norm\.", "model.final_norm."),
        (r"heads\.vector_classification\.classifier\.", "vector_classifier."),
        (r"heads\.\w+\.(dense|norm)\.", r"head.\1."),
        (r"heads\.masked_lm\.bias$", "decoder.bias"),
        (r"heads\.\w+\.classifier\.", "classifier."),
    ],
    marks={"masked_lm": "decoder.bias", "vector_classification": "vector_classifier.weight"},
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    shared_parts=("head.",),
)

ALL_NAMES = (BERT, MODERNBERT)


def names_of(config: AnyConfig) -> Names:
    """How the kind of encoder of a config is spelled."""
    return MODERNBERT if isinstance(config, ModernBertConfig) else BERT


def module_of(part: str) -> str:
    """Where in `Network` a head, or "pooler", is."""
    return "encoder.pooler" if part == "pooler" else f"heads.{part}"
