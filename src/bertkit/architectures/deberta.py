"""DeBERTa, versions 2 and 3 (He et al. 2021, 2023)."""

from pathlib import Path
from typing import Any

from bertkit.architectures.architecture import Architecture, Content, Head, HeadOptions, tokens
from bertkit.architectures.roberta import classifier, first_token
from bertkit.architectures.tensor_names import TensorNames, bert_rules
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member
from bertkit.heads.classification import ClassificationHead, DenseClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.transformer import DebertaConfig, DebertaEncoder

_REQUIRED: dict[str, tuple[Any, ...]] = {
    "relative_attention": (True,),
    "pos_att_type": ("p2c|c2p", "c2p|p2c", ["p2c", "c2p"], ["c2p", "p2c"]),
    "share_att_key": (True,),
    "norm_rel_ebd": ("layer_norm",),
    "position_biased_input": (False,),
    "conv_kernel_size": (0,),
}

_CLASS_DEFAULTS = {  # for keys absent from config.json, as in transformers' DebertaV2Config
    "relative_attention": False,
    "pos_att_type": None,
    "share_att_key": False,
    "norm_rel_ebd": "none",
    "position_biased_input": True,
    "position_buckets": -1,
    "max_relative_positions": -1,
    "max_position_embeddings": 512,
}


def _read_config(content: Content, path: Path) -> Content:
    """Add the defaults of transformers' class, and use one key for the maximum relative distance.

    Raises:
        CheckpointError: sizes that must be equal for this encoder differ.
    """
    content = _CLASS_DEFAULTS | content
    size, heads = (member(content, key, int, path, 0) for key in ("hidden_size", "num_attention_heads"))
    for key, expected in (
        ("embedding_size", size),
        ("pooler_hidden_size", size),
        ("attention_head_size", size // heads if heads > 0 else 0),
    ):
        if content.pop(key, None) not in (None, expected):
            raise CheckpointError(f"{path}: {key} must be {expected} with hidden_size={size} and {heads} heads")
    if member(content, "max_relative_positions", int, path, 0) < 1:
        content["max_relative_positions"] = content["max_position_embeddings"]
    return content


def _sequences(config: DebertaConfig, options: HeadOptions) -> DenseClassificationHead:
    default = config.hidden_dropout_prob if config.cls_dropout is None else config.cls_dropout
    probability = default if options.dropout_prob is None else options.dropout_prob
    return DenseClassificationHead(
        config, options.num_labels, probability, config.pooler_hidden_act, config.pooler_dropout
    )


DEBERTA = Architecture(
    model_type="deberta-v2",
    class_prefix="DebertaV2",
    config=DebertaConfig,
    encoder=DebertaEncoder,
    heads={
        "masked_lm": Head(lambda config, options: MaskedLMHead(config), tokens),
        "sequence_classification": Head(_sequences, first_token),
        "token_classification": Head(classifier, tokens),
        "question_answering": Head(lambda config, options: ClassificationHead(config, 2, 0.0), tokens),
        "multiple_choice": Head(
            lambda config, options: _sequences(config, options._replace(num_labels=1)), first_token
        ),
    },
    names=TensorNames(
        prefix="deberta.",
        encoder_parts=("embeddings.", "encoder."),
        head_parts=("cls.", "pooler.", "classifier.", "qa_outputs.", "mask_predictions."),
        rules=[
            (r"encoder\.relative_positions\.", "deberta.encoder.rel_embeddings."),
            (r"encoder\.relative_norm\.", "deberta.encoder.LayerNorm."),
            (
                r"encoder\.layers\.(\d+)\.attention\.(query|key|value)\.",
                r"deberta.encoder.layer.\1.attention.self.\2_proj.",
            ),
            *bert_rules("deberta."),
            (r"heads\.masked_lm\.dense\.", "cls.predictions.transform.dense."),
            (r"heads\.masked_lm\.norm\.", "cls.predictions.transform.LayerNorm."),
            (r"heads\.masked_lm\.bias$", "cls.predictions.bias"),
            (r"heads\.question_answering\.classifier\.", "qa_outputs."),
            (r"heads\.(sequence_classification|multiple_choice)\.dense\.", "pooler.dense."),
            (r"heads\.(sequence_classification|token_classification|multiple_choice)\.classifier\.", "classifier."),
        ],
        signature_tensors={
            "masked_lm": "cls.predictions.transform.dense.weight",
            "question_answering": "qa_outputs.weight",
        },
        classifiers={
            "pooler.dense.weight": ("sequence_classification", "multiple_choice"),
            "classifier.weight": ("token_classification",),
        },
        tied={
            "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        buffers=frozenset({"deberta.embeddings.position_ids", "deberta.embeddings.position_embeddings.weight"}),
        old_names=(
            (r"lm_predictions\.lm_head\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
            (r"lm_predictions\.lm_head\.bias$", "cls.predictions.bias"),
        ),
        unused_parts=("mask_predictions.",),
    ),
    required_values=_REQUIRED,
    ignored_keys=frozenset(("legacy",)),
    read_config=_read_config,
    embedding_parts=("embeddings.", "relative_positions.", "relative_norm."),
)
