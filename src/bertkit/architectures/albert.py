"""ALBERT (Lan et al. 2020): narrow embeddings, and layers that share their weights."""

from bertkit.architectures.architecture import Architecture, Head, HeadOptions, pooler, tokens
from bertkit.architectures.tensor_names import TensorNames, bert_rules
from bertkit.heads.classification import ClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.transformer import AlbertConfig, AlbertEncoder


def _classifier(config: AlbertConfig, options: HeadOptions) -> ClassificationHead:
    probability = config.classifier_dropout_prob if options.dropout_prob is None else options.dropout_prob
    return ClassificationHead(config, options.num_labels, probability)


def _order(config: AlbertConfig, options: HeadOptions) -> ClassificationHead:
    return ClassificationHead(config, 2, config.classifier_dropout_prob)


_LAYER = r"encoder\.layers\.(\d+)\."
_STORED = r"albert.encoder.albert_layer_groups.\1.albert_layers.0."

ALBERT = Architecture(
    model_type="albert",
    class_prefix="Albert",
    config=AlbertConfig,
    encoder=AlbertEncoder,
    heads={
        "masked_lm": Head(lambda config, options: MaskedLMHead(config), tokens),
        "next_sentence": Head(_order, pooler),  # original or swapped order of two texts
        "sequence_classification": Head(_classifier, pooler),
        "token_classification": Head(_classifier, tokens),
        "question_answering": Head(lambda config, options: ClassificationHead(config, 2, 0.0), tokens),
        "multiple_choice": Head(lambda config, options: _classifier(config, options._replace(num_labels=1)), pooler),
    },
    names=TensorNames(
        prefix="albert.",
        encoder_parts=("embeddings.", "encoder.", "pooler."),
        head_parts=("predictions.", "sop_classifier.", "classifier.", "qa_outputs."),
        rules=[
            (r"encoder\.embeddings\.project\.", "albert.encoder.embedding_hidden_mapping_in."),
            (rf"{_LAYER}attention\.(query|key|value)\.", rf"{_STORED}attention.\2."),
            (rf"{_LAYER}attention\.output\.", rf"{_STORED}attention.dense."),
            (rf"{_LAYER}attention_norm\.", rf"{_STORED}attention.LayerNorm."),
            (rf"{_LAYER}feed_forward\.expand\.", rf"{_STORED}ffn."),
            (rf"{_LAYER}feed_forward\.project\.", rf"{_STORED}ffn_output."),
            (rf"{_LAYER}feed_forward_norm\.", rf"{_STORED}full_layer_layer_norm."),
            (r"encoder\.pooler\.dense\.", "albert.pooler."),
            *bert_rules("albert."),
            (r"heads\.masked_lm\.dense\.", "predictions.dense."),
            (r"heads\.masked_lm\.norm\.", "predictions.LayerNorm."),
            (r"heads\.masked_lm\.bias$", "predictions.bias"),
            (r"heads\.next_sentence\.classifier\.", "sop_classifier.classifier."),
            (r"heads\.question_answering\.classifier\.", "qa_outputs."),
            (r"heads\.(sequence_classification|token_classification|multiple_choice)\.classifier\.", "classifier."),
        ],
        signature_tensors={
            "pooler": "albert.pooler.weight",
            "masked_lm": "predictions.dense.weight",
            "next_sentence": "sop_classifier.classifier.weight",
            "question_answering": "qa_outputs.weight",
        },
        classifiers={"classifier.weight": ("sequence_classification", "token_classification", "multiple_choice")},
        tied={
            "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
        buffers=frozenset({"albert.embeddings.position_ids", "albert.embeddings.token_type_ids"}),
    ),
    required_values={"inner_group_num": (1,), "position_embedding_type": ("absolute",)},
    ignored_keys=frozenset("net_structure_type gap_size num_memory_blocks down_scale_factor".split()),
    token_id_keys={"bos_token_id": "cls", "eos_token_id": "sep"},
    num_stored_layers=lambda config: config.num_hidden_groups,
)
