"""Our parameter names to the published ones (those of transformers' BERT classes)."""

import re

ARCHITECTURES = {  # published class -> model kind
    "BertModel": "encoder",
    "BertForPreTraining": "pretraining",
    "BertForMaskedLM": "masked_lm",
    "BertForNextSentencePrediction": "next_sentence",
    "BertForSequenceClassification": "sequence_classification",
    "BertForTokenClassification": "token_classification",
    "BertForQuestionAnswering": "question_answering",
    "BertForMultipleChoice": "multiple_choice",
}

_RULES = [  # pattern of ours -> published; the first that matches applies
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
    (r"heads\.question_answering\.dense\.", "qa_outputs."),
    (r"heads\.(sequence_classification|token_classification|multiple_choice)\.dense\.", "classifier."),
]

MARKS = {  # published head -> the tensor whose presence shows it
    "masked_lm": "cls.predictions.transform.dense.weight",
    "next_sentence": "cls.seq_relationship.weight",
    "question_answering": "qa_outputs.weight",
}

POOLER_MARK = "bert.pooler.dense.weight"
CLASSIFIER_MARK = "classifier.weight"
CLASSIFIER_HEADS = ("sequence_classification", "token_classification", "multiple_choice")

TIED = {  # published copies of other tensors; ours hold one
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

BUFFERS = {"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"}
"""Constants 0, 1, 2, ... that old versions stored among the weights."""


def published_name(name: str) -> str:
    """The published name of one of `Bert`'s parameters, as of a model with heads ("bert." before the encoder's).

    >>> published_name("encoder.layers.3.attention.query.weight")
    'bert.encoder.layer.3.attention.self.query.weight'
    """
    for pattern, replacement in _RULES:
        if re.match(pattern, name):
            return re.sub(pattern, replacement, name, count=1)
    raise KeyError(name)


def module_of(part: str) -> str:
    """Where in `Bert` a head, or "pooler", is."""
    return "encoder.pooler" if part == "pooler" else f"heads.{part}"


def canonical_name(stored: str, *, has_prefix: bool) -> str:
    """A stored name with the spellings of old and bare checkpoints made one: gamma/beta (as TensorFlow called the
    weight and bias of layer normalization), and encoders stored without the "bert." prefix."""
    name = re.sub(r"\.LayerNorm\.gamma$", ".LayerNorm.weight", stored)
    name = re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)
    if not has_prefix and name.startswith(("embeddings.", "encoder.", "pooler.")):
        return "bert." + name
    return name
