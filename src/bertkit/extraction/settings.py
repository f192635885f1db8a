"""The content of a published ``gliner_config.json``."""

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import check_required_values, member, read_json

NAME = "gliner_config.json"

PAIRS = ("none", "dot", "bilinear", "mlp")
"""How a model chooses the pairs of entities that may be related; none: all of them."""

_REQUIRED: dict[str, tuple[Any, ...]] = {  # keys that affect the outputs, with the supported values
    "subtoken_pooling": ("first",),
    "words_splitter_type": ("whitespace",),
    "fuse_layers": (False,),
    "post_fusion_schema": ("", None),
    "span_encoder_config": (None,),
    "precomputed_prompts_mode": (None, False),
    "represent_spans": (False,),
    "labels_decoder": (None, ""),
    "labels_decoder_config": (None,),
    "decoder_config": (None,),
    "relations_layer": (None, *PAIRS),
    "triples_layer": (None,),
    "span_mode": ("markerV0", "token_level", "token-level"),
    "model_type": (
        None, "gliner", "gliner_base", "gliner_uni_encoder", "gliner_uni_encoder_span", "gliner_uni_encoder_token",
        "gliner_uni_encoder_span_relex", "gliner_uni_encoder_token_relex", "gliner_bi_encoder",
        "gliner_bi_encoder_span", "gliner_bi_encoder_token",
    ),
}  # fmt: skip

_READ = {
    "encoder_config", "labels_encoder_config", "labels_encoder", "hidden_size", "max_width", "max_len",
    "num_rnn_layers", "embed_ent_token", "class_token_index", "ent_token", "sep_token", "vocab_size", "model_name",
    "embed_rel_token", "rel_token", "rel_token_index",
}  # fmt: skip

_OF_TRAINING = frozenset(  # keys that do not affect the outputs
    """
    name dropout fine_tune max_neg_type_ratio max_types num_post_fusion_layers token_loss_coef span_loss_coef
    neg_spans_ratio id_to_classes transformers_version _attn_implementation architectures torch_dtype dtype
    _name_or_path return_dict output_hidden_states output_attentions
    lr_encoder lr_others weight_decay_encoder weight_decay_other scheduler_type warmup_ratio num_steps
    train_batch_size eval_every save_total_limit loss_alpha loss_gamma label_smoothing loss_reduction loss_prob_margin
    loss_type masking negatives has_rnn shuffle_types random_drop size_sup freeze_token_rep root_dir train_data
    val_data_dir prev_path log_dir max_grad_norm gradient_accumulation_steps decoder_mode full_decoder_context
    blank_entity_prob decoder_loss_coef adjacency_loss_coef relation_loss_coef augment_data_prob augment_ent_drop_prob
    augment_rel_drop_prob augment_add_other_prob rel_id_to_classes
    """.split()
)


@dataclass(frozen=True)
class RelationSettings:
    """What a published model computes to relate entities."""

    pairs: str  # one of PAIRS
    reads_marker: bool  # a relation's vector is that of the marker before its name; else of the name's first token
    marker: str
    marker_id: int


@dataclass(frozen=True)
class ExtractionSettings:
    """What a published model computes beyond its encoders."""

    encoder: dict[str, Any]  # content of the encoder's config.json
    labels_encoder: dict[str, Any] | None  # of the encoder of labels; None: labels are a prompt before the text
    of_tokens: bool  # scores starts, ends and insides of words; else spans
    hidden_size: int  # of the scorer
    max_width: int  # words of the longest span; spans of a scorer of tokens are limited by max_words
    max_words: int  # words of a sequence
    num_lstm_layers: int  # over words
    reads_label_marker: bool  # a label's vector is that of the marker before it; else of its first token
    label_marker: str
    text_marker: str
    label_marker_id: int
    relations: RelationSettings | None = None  # None: the model finds entities only


def read_settings(folder: Path) -> ExtractionSettings:
    """The settings of a folder.

    Raises:
        CheckpointError: no gliner_config.json, or one with values or keys that are not supported.
    """
    path = folder / NAME
    content = read_json(path)
    if content is None:
        raise CheckpointError(f"{folder} is not an extraction model: it holds no {NAME}")
    _check_keys(content, _REQUIRED, _READ, path)
    sizes = {
        key: member(content, key, int, path, default)
        for key, default in (("hidden_size", 512), ("max_width", 12), ("max_len", 384), ("num_rnn_layers", 1))
    }
    for key, size in sizes.items():
        if size < (key != "num_rnn_layers"):
            raise CheckpointError(f"{path}: {key} is {size}: expected at least {int(key != 'num_rnn_layers')}")
    of_tokens = member(content, "span_mode", str, path, "markerV0") != "markerV0"
    labels_encoder = member(content, "labels_encoder_config", dict, path)
    if labels_encoder is None and content.get("labels_encoder"):
        raise CheckpointError(
            f"{path} has no labels_encoder_config: copy the content of config.json of {content['labels_encoder']} there"
        )
    if not of_tokens and 2 * sizes["max_width"] > sizes["max_len"]:
        raise CheckpointError(
            f"{path}: max_width is {sizes['max_width']}: expected at most half of max_len, {sizes['max_len']}"
        )
    return ExtractionSettings(
        encoder=_encoder(content, path),
        labels_encoder=labels_encoder and _with_type(labels_encoder),
        of_tokens=of_tokens,
        hidden_size=sizes["hidden_size"],
        max_width=sizes["max_width"],
        max_words=sizes["max_len"],
        num_lstm_layers=0 if labels_encoder else sizes["num_rnn_layers"],  # as published, which stores but skips them
        reads_label_marker=member(content, "embed_ent_token", bool, path, True),
        label_marker=member(content, "ent_token", str, path, "<<ENT>>"),
        text_marker=member(content, "sep_token", str, path, "<<SEP>>"),
        label_marker_id=member(content, "class_token_index", int, path, -1),
        relations=_relations(content, path),
    )


def _check_keys(content: dict[str, Any], required: dict[str, tuple[Any, ...]], read: Set[str], path: Path) -> None:
    check_required_values(content, required, path)
    if unknown := content.keys() - required.keys() - read - _OF_TRAINING:
        raise CheckpointError(
            f"{path} has unknown keys ({', '.join(sorted(unknown))}), which may change what the model computes: remove "
            "them from the file if they do not"
        )


def _relations(content: dict[str, Any], path: Path) -> RelationSettings | None:
    if content.get("relations_layer") is None:
        return None
    if content.get("labels_encoder"):
        raise CheckpointError(f"{path}: relations_layer is {content['relations_layer']!r} beside a labels_encoder")
    return RelationSettings(
        pairs=content["relations_layer"],
        reads_marker=member(content, "embed_rel_token", bool, path, True),
        marker=member(content, "rel_token", str, path, "<<REL>>"),
        marker_id=member(content, "rel_token_index", int, path, -1),
    )


@dataclass(frozen=True)
class SchemaSettings:
    """What a published model of schemas computes beyond its encoder."""

    encoder: dict[str, Any]  # content of the encoder's config.json
    max_width: int  # words of the longest span
    counts_by_transformer: bool  # the labels of an instance attend to each other


_OF_SCHEMAS: dict[str, tuple[Any, ...]] = {  # keys that affect the outputs, with the supported values
    "architecture": ("span",),
    "token_pooling": ("first",),
    "counting_layer": ("count_lstm", "count_lstm_v2"),
    "max_len": (None,),
}
_READ_OF_SCHEMAS = {
    "max_width", "span_head", "model_type", "model_name", "architecture_version", "config_version",
    "attn_implementation",
}  # fmt: skip


def is_extraction(folder: Path) -> bool:
    """Whether a folder holds a model in the form of GLiNER or GLiNER2."""
    return (folder / NAME).is_file() or reads_schemas(folder)


def reads_schemas(folder: Path) -> bool:
    """Whether a folder holds a model in the form of GLiNER2."""
    content = None if (folder / NAME).exists() else read_json(folder / "config.json")
    return content is not None and content.get("model_type") == "extractor"


def read_schema_settings(folder: Path) -> SchemaSettings:
    """The settings of a folder in the form of GLiNER2.

    Raises:
        CheckpointError: a file is missing, or a value is not supported.
    """
    path = folder / "config.json"
    content, encoder = read_json(path) or {}, read_json(folder / "encoder_config" / "config.json")
    if encoder is None:
        raise CheckpointError(f"{folder} holds no encoder_config/config.json, the config of its encoder")
    _check_keys(content, _OF_SCHEMAS, _READ_OF_SCHEMAS, path)
    max_width = member(content | member(content, "span_head", dict, path, {}), "max_width", int, path, 8)
    if max_width < 1:
        raise CheckpointError(f"{path}: max_width is {max_width}: expected at least 1")
    counting = member(content, "counting_layer", str, path, "count_lstm")
    return SchemaSettings(_with_type(encoder), max_width, counting == "count_lstm_v2")


def _encoder(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The config of the text encoder: older folders only name its model."""
    encoder = member(content, "encoder_config", dict, path) or read_json(path.parent / "config.json")
    if encoder is None:
        raise CheckpointError(
            f"{path} has no encoder_config: put config.json of {content.get('model_name', 'its encoder')} into the "
            "folder"
        )
    size = member(content, "vocab_size", int, path, -1)
    return _with_type(encoder) | ({} if size < 0 or content.get("labels_encoder_config") else {"vocab_size": size})


def _with_type(encoder: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": "deberta-v2"} | encoder
