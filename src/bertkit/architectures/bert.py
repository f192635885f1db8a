"""BERT (Devlin et al. 2018)."""

from bertkit.architectures.architecture import Architecture, Head, HeadOptions, pooler, tokens
from bertkit.architectures.tensor_names import TensorNames, bert_rules
from bertkit.heads.classification import ClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.heads.next_sentence import NextSentenceHead
from bertkit.transformer import BertConfig, Encoder


def _classifier(config: BertConfig, options: HeadOptions) -> ClassificationHead:
    dropout_prob = config.hidden_dropout_prob if options.dropout_prob is None else options.dropout_prob
    return ClassificationHead(config, options.num_labels, dropout_prob)


BERT = Architecture(
    model_type="bert",
    class_prefix="Bert",
    config=BertConfig,
    encoder=Encoder,
    heads={
        "masked_lm": Head(lambda config, options: MaskedLMHead(config), tokens),
        "next_sentence": Head(lambda config, options: NextSentenceHead(config), pooler),
        "sequence_classification": Head(_classifier, pooler),
        "token_classification": Head(_classifier, tokens),
        "question_answering": Head(lambda config, options: ClassificationHead(config, 2, 0.0), tokens),
        "multiple_choice": Head(lambda config, options: _classifier(config, options._replace(num_labels=1)), pooler),
    },
    names=TensorNames(
        prefix="bert.",
        encoder_parts=("embeddings.", "encoder.", "pooler."),
        head_parts=("cls.", "classifier.", "qa_outputs."),
        rules=[
            *bert_rules("bert."),
            (r"heads\.masked_lm\.dense\.", "cls.predictions.transform.dense."),
            (r"heads\.masked_lm\.norm\.", "cls.predictions.transform.LayerNorm."),
            (r"heads\.masked_lm\.bias$", "cls.predictions.bias"),
            (r"heads\.next_sentence\.dense\.", "cls.seq_relationship."),
            (r"heads\.question_answering\.classifier\.", "qa_outputs."),
            (r"heads\.(sequence_classification|token_classification|multiple_choice)\.classifier\.", "classifier."),
        ],
        signature_tensors={
            "pooler": "bert.pooler.dense.weight",
            "masked_lm": "cls.predictions.transform.dense.weight",
            "next_sentence": "cls.seq_relationship.weight",
            "question_answering": "qa_outputs.weight",
        },
        classifiers={"classifier.weight": ("sequence_classification", "token_classification", "multiple_choice")},
        tied={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        buffers=frozenset({"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"}),
    ),
    required_values={"position_embedding_type": ("absolute",)},
    causal_class="BertLMHeadModel",
)
