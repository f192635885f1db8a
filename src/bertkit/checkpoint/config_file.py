"""A published ``config.json`` to a config of ours and back: read as data, nothing in it taken silently."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bertkit.checkpoint import modernbert_config
from bertkit.checkpoint.names import names_of
from bertkit.errors import CheckpointError, UsageError
from bertkit.files.json_files import member, read_json
from bertkit.transformer import CONFIGS, AnyConfig

_REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {  # keys that change the numbers, with the values our encoders compute
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "tie_word_embeddings": (True,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "chunk_size_feed_forward": (0,),
}

_REQUIRED_OF: dict[str, dict[str, tuple[Any, ...]]] = {  # the same of one kind of encoder
    "bert": {"position_embedding_type": ("absolute",)},
    "modernbert": modernbert_config.REQUIRED_VALUES,
}

_IGNORED_OF = {"bert": frozenset(), "modernbert": modernbert_config.IGNORED_KEYS}

_IGNORED_KEYS = frozenset(  # keys that leave the encoder's numbers as they are
    """
    _name_or_path name architectures auto_map transformers_version torch_dtype dtype use_cache gradient_checkpointing
    use_bfloat16 torchscript return_dict output_attentions output_hidden_states output_past xla_device tf_legacy_loss
    pad_token_id bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id
    tokenizer_class do_lower_case language prefix finetuning_task task_specific_params attn_implementation
    _attn_implementation _attn_implementation_internal _attn_implementation_autoset tie_encoder_decoder
    cross_attention_hidden_size directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type max_length min_length do_sample early_stopping num_beams num_beam_groups
    diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences return_dict_in_generate output_scores
    forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens sentence_transformers model_type
    """.split()
)

_LABEL_KEYS = {"id2label", "label2id", "num_labels", "problem_type", "classifier_dropout"}


@dataclass(frozen=True)
class PublishedConfig:
    """What a ``config.json`` says."""

    transformer: AnyConfig
    architecture: str | None = None  # the published class, a key of `Names.architectures`
    label_names: tuple[str, ...] | None = None  # in id order
    problem_type: str | None = None  # "regression", "single_label_classification", "multi_label_classification"
    classifier_dropout: float | None = None


def read_config(directory: Path, ignore_keys: Collection[str] = ()) -> PublishedConfig:
    """Read ``config.json``.

    Args:
        ignore_keys: unknown keys that the caller has looked at and wants left out of account.

    Raises:
        CheckpointError: it is missing, another kind of model, or has a key whose meaning is not known here.
    """
    path = directory / "config.json"
    content = read_json(path)
    if content is None:
        raise CheckpointError(f"{directory} is not a model folder: it holds no config.json")
    kind = content.get("model_type", "bert")
    if kind not in list(CONFIGS):  # a list, as an entry of the file may be of any type
        raise CheckpointError(f"{path} has model_type={kind!r}; supported: {', '.join(map(repr, CONFIGS))}")
    if kind == "modernbert":
        content = modernbert_config.in_first_spelling(content, path)
    required = _REQUIRED_VALUES | _REQUIRED_OF[kind]
    for key, allowed in required.items():
        if key in content and content[key] not in allowed:
            raise CheckpointError(f"{path} has {key}={content[key]!r}; supported: {allowed[0]!r}")
    shape = {field.name for field in fields(CONFIGS[kind])}
    known = shape | required.keys() | _IGNORED_KEYS | _IGNORED_OF[kind] | _LABEL_KEYS | set(ignore_keys)
    if unknown := content.keys() - known:
        raise CheckpointError(
            f"{path} has unknown keys ({', '.join(sorted(unknown))}), which may change what the model computes: look "
            "at them, and if they do not, pass ignore_config_keys=[...]"
        )
    missing = {
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    } - content.keys()
    if missing:
        raise CheckpointError(f"{path} lacks {', '.join(sorted(missing))}")
    floats: dict[str, Any] = {  # an integer there may be too large for a float
        field.name: float(member(content, field.name, float, path))
        for field in fields(CONFIGS[kind])
        if field.type is float and isinstance(content.get(field.name), int)
    }
    try:
        transformer = CONFIGS[kind](**{key: content[key] for key in shape & content.keys()} | floats)
    except (UsageError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    classes = list(names_of(transformer).architectures)
    architectures = [name for name in member(content, "architectures", list, path, []) if name in classes]
    return PublishedConfig(
        transformer,
        architecture=architectures[0] if architectures else None,
        label_names=_label_names(content, path),
        problem_type=member(content, "problem_type", str, path),
        classifier_dropout=member(content, "classifier_dropout", float, path),
    )


def config_json(config: PublishedConfig, special_ids: dict[str, int | None]) -> dict[str, Any]:
    """The content of a ``config.json`` that transformers opens.

    Args:
        special_ids: "pad", "cls" and "sep" -> its id, or None.
    """
    kind = names_of(config.transformer).model_type
    content: dict[str, Any] = {
        "architectures": [config.architecture],
        "model_type": kind,
        "pad_token_id": special_ids["pad"],
        **{key: allowed[0] for key, allowed in _REQUIRED_OF[kind].items()},
        **asdict(config.transformer),
    }
    if kind == "modernbert":
        content |= modernbert_config.token_ids(special_ids)
    if config.label_names is not None:
        content["id2label"] = {str(index): name for index, name in enumerate(config.label_names)}
        content["label2id"] = {name: index for index, name in enumerate(config.label_names)}
    if config.problem_type is not None:
        content["problem_type"] = config.problem_type
    if config.classifier_dropout is not None:
        content["classifier_dropout"] = config.classifier_dropout
    return content


def _label_names(content: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    id2label = content.get("id2label")
    if id2label is None:
        num_labels = member(content, "num_labels", int, path)
        return None if num_labels is None else tuple(f"LABEL_{index}" for index in range(num_labels))
    try:
        by_id = {int(index): str(name) for index, name in id2label.items()}
    except (ValueError, AttributeError):
        raise CheckpointError(f"{path}: id2label must map integers to names, it is {id2label!r:.80}") from None
    if sorted(by_id) != list(range(len(by_id))):
        raise CheckpointError(f"{path}: the ids of id2label are {sorted(by_id)}, expected 0 .. {len(by_id) - 1}")
    return tuple(by_id[index] for index in range(len(by_id)))
