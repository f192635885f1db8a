"""Read and write ``config.json``: as data only, without ignoring an unknown key."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bertkit.architectures import ARCHITECTURES, Architecture, architecture_of
from bertkit.architectures.registry import NOT_SUPPORTED, OTHER_MODEL_TYPES
from bertkit.checkpoint.ignored_parts import is_ignored_key
from bertkit.checkpoint.sentence import activation_path, read_activation
from bertkit.errors import CheckpointError, UsageError
from bertkit.files.json_files import check_required_values, member, read_json
from bertkit.transformer import EncoderConfig

REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {  # keys that affect the outputs, with the supported values
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "chunk_size_feed_forward": (0,),
}

_IGNORED_KEYS = frozenset(  # keys that do not affect the encoder's outputs
    """
    _name_or_path name architectures auto_map transformers_version torch_dtype dtype use_cache gradient_checkpointing
    use_bfloat16 torchscript return_dict output_attentions output_hidden_states output_past xla_device tf_legacy_loss
    pad_token_id bos_token_id eos_token_id eos_token_ids sep_token_id cls_token_id mask_token_id unk_token_id
    decoder_start_token_id tokenizer_class do_lower_case language prefix finetuning_task task_specific_params
    attn_implementation
    _attn_implementation _attn_implementation_internal _attn_implementation_autoset tie_encoder_decoder
    cross_attention_hidden_size directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type max_length min_length do_sample early_stopping num_beams num_beam_groups
    diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences return_dict_in_generate output_scores
    forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens sentence_transformers sbert_ce_default_activation_function model_type _num_labels emb_size
    cell structure pre_trained training transformers.js_config
    """.split()
)

_LABEL_KEYS = {"id2label", "label2id", "num_labels", "problem_type", "classifier_dropout"}

_TIED = "tie_word_embeddings"  # affects the outputs of a masked LM head only

_MANDATORY = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclass(frozen=True)
class PublishedConfig:
    """The parsed content of a ``config.json``."""

    transformer: EncoderConfig
    published_class: str | None = None  # a key of `Architecture.published_classes`
    label_names: tuple[str, ...] | None = None  # in id order
    num_labels: int | None = None  # as older files state it besides the label names, or without them
    problem_type: str | None = None  # "regression", "single_label_classification", "multi_label_classification"
    classifier_dropout: float | None = None
    score_activation: str | None = None  # for cross-encoders, the name of a torch class
    pad_token_id: int | None = None
    is_tied: bool = True  # the masked LM head shares the matrix of the word embedding


_ENCODER_DECODERS = ("marian", "encoder-decoder")
"""Values of "model_type" of encoder-decoders."""


def is_encoder_decoder(directory: Path) -> bool:
    """True if config.json describes an encoder-decoder model."""
    return (read_json(directory / "config.json") or {}).get("model_type") in _ENCODER_DECODERS


def read_config(directory: Path, ignore_keys: Collection[str] = ()) -> PublishedConfig:
    """Read ``config.json``.

    Args:
        ignore_keys: keys to ignore, for any value.

    Raises:
        CheckpointError: the file is missing, belongs to another kind of model, or has an unknown key.
    """
    path = directory / "config.json"
    content = config_content(path)
    if content is None:
        inside = directory / "model"
        advice = f"; its run has the model {inside}" if (inside / "config.json").is_file() else ""
        raise CheckpointError(f"{directory} is not a model folder: it holds no config.json{advice}")
    return parse_config(content, path, ignore_keys)


def parse_config(content: dict[str, Any], path: Path, ignore_keys: Collection[str] = ()) -> PublishedConfig:
    """The config in the content of a file.

    Args:
        path: of the file, for errors.

    Raises:
        CheckpointError: it belongs to another kind of model, or has an unknown key.
    """
    model_type = content.get("model_type", "bert")
    if "model_type" not in content:
        _refuse_other_classes(member(content, "architectures", list, path, []), path)
    if model_type in list(OTHER_MODEL_TYPES):  # a list, as an entry of the file may be of any type
        model_type = OTHER_MODEL_TYPES[model_type]
    if model_type not in list(ARCHITECTURES):
        instead = f"; use {NOT_SUPPORTED[model_type]}" if model_type in list(NOT_SUPPORTED) else ""
        raise CheckpointError(
            f"{path} has model_type={model_type!r}; supported: {', '.join(map(repr, ARCHITECTURES))}{instead}"
        )
    record = ARCHITECTURES[model_type]
    content = record.read_config({key: value for key, value in content.items() if key not in ignore_keys}, path)
    required = {**REQUIRED_VALUES, **record.required_values}
    if record.causal_class in member(content, "architectures", list, path, []):
        required["is_decoder"] = (True, False)
    check_required_values(content, required, path)
    keys = _keys(record)
    known = {*keys.values(), *required, *record.ignored_keys, *record.token_id_keys, *_LABEL_KEYS, _TIED}
    refuse_unknown_keys(content, known, path)
    transformer = transformer_config(record.config, content, keys, path)
    supported = list(record.published_classes())
    classes = [name for name in member(content, "architectures", list, path, []) if name in supported]
    return PublishedConfig(
        transformer,
        published_class=classes[0] if classes else None,
        label_names=_label_names(content, path),
        num_labels=member(content, "num_labels", int, path),
        problem_type=member(content, "problem_type", str, path),
        classifier_dropout=_classifier_dropout(content, path),
        score_activation=_score_activation(content, path),
        pad_token_id=member(content, "pad_token_id", int, path),
        is_tied=member(content, _TIED, bool, path, True),
    )


def _refuse_other_classes(names: list[Any], path: Path) -> None:
    """Check that a config without model_type, which is an older BERT's, names no class of another family."""
    for record in ARCHITECTURES.values():
        if record.model_type != "bert" and not record.published_classes().keys().isdisjoint(map(str, names)):
            raise CheckpointError(
                f'{path} has no model_type, and architectures={names!r:.80}: write "model_type": '
                f'"{record.model_type}" into it'
            )


def config_content(path: Path) -> dict[str, Any] | None:
    """The content of a ``config.json`` without the keys of `ignoring`; None without the file."""
    content = read_json(path)
    return None if content is None else {key: value for key, value in content.items() if not is_ignored_key(key)}


def refuse_unknown_keys(content: dict[str, Any], known: Collection[str], path: Path) -> None:
    """Check that the meaning of every key is known.

    Raises:
        CheckpointError: a key that is not in ``known`` and may affect the outputs.
    """
    if unknown := content.keys() - set(known) - _IGNORED_KEYS:
        raise CheckpointError(
            f"{path} has unknown keys ({', '.join(sorted(unknown))}), which may change what the model computes: check "
            f"them, and if they do not, pass ignore_config_keys={sorted(unknown)} to bertkit.load, or make a copy "
            f"without them: bertkit convert {path.parent} --out NEW_FOLDER --ignore-config-keys "
            f"{' '.join(sorted(unknown))}"
        )


def transformer_config(kind: type[Any], content: dict[str, Any], keys: dict[str, str], path: Path) -> Any:
    """The config of an encoder or decoder.

    Args:
        kind: class of the config.
        keys: keys of its fields in ``content``.

    Raises:
        CheckpointError: a missing size, or an invalid value.
    """
    if missing := {keys[name] for name in _MANDATORY} - content.keys():
        raise CheckpointError(f"{path} lacks {', '.join(sorted(missing))}")
    values = {name: content[key] for name, key in keys.items() if key in content}
    for field in fields(kind):
        if field.type is float and isinstance(values.get(field.name), int):  # may be too large for a float
            values[field.name] = float(member(content, keys[field.name], float, path))
    try:
        return kind(**values)
    except (UsageError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def config_json(config: PublishedConfig, special_ids: dict[str, int | None]) -> dict[str, Any]:
    """The content of a ``config.json`` that transformers opens.

    Args:
        special_ids: ids of "pad", "cls" and "sep", or None.
    """
    record = architecture_of(config.transformer)
    content: dict[str, Any] = {
        "architectures": [config.published_class],
        "model_type": record.model_type,
        "pad_token_id": special_ids["pad"],
        **{key: allowed[0] for key, allowed in record.required_values.items()},
        **{key: getattr(config.transformer, name) for name, key in _keys(record).items()},
        **{key: special_ids[role] for key, role in record.token_id_keys.items()},
    }
    if config.label_names is not None:
        content["id2label"] = {str(index): name for index, name in enumerate(config.label_names)}
        content["label2id"] = {name: index for index, name in enumerate(config.label_names)}
    if config.problem_type is not None:
        content["problem_type"] = config.problem_type
    if config.classifier_dropout is not None:
        content["classifier_dropout"] = config.classifier_dropout
    if config.score_activation is not None:
        content["sentence_transformers"] = {"activation_fn": activation_path(config.score_activation)}
    return record.write_config(content)


def _score_activation(content: dict[str, Any], path: Path) -> str | None:
    """The activation of a cross-encoder, as written by sentence-transformers 4 and later, or by earlier versions."""
    named = member(content, "sentence_transformers", dict, path, {})
    if "activation_fn" not in named:
        named = {"activation_fn": content.get("sbert_ce_default_activation_function")}
    return read_activation(named, path)


def _keys(record: Architecture) -> dict[str, str]:
    """Config field -> key of config.json."""
    return {field.name: record.key_names.get(field.name, field.name) for field in fields(record.config) if field.init}


def default_label_names(num_labels: int) -> tuple[str, ...]:
    """LABEL_0, LABEL_1, ...: the names that transformers gives to labels without names."""
    return tuple(f"LABEL_{index}" for index in range(num_labels))


def _label_names(content: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    id2label = content.get("id2label")
    if id2label is None:
        ids: Any = content.get("label2id")
        if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
            return None
        names = tuple(sorted(ids, key=ids.__getitem__))
        has_names = sorted(ids.values()) == list(range(len(ids))) and names != default_label_names(len(names))
        return names if has_names else None
    try:
        by_id = {int(index): str(name) for index, name in id2label.items()}
    except (ValueError, AttributeError):
        raise CheckpointError(f"{path}: id2label is {id2label!r:.80}: expected a map from integers to names") from None
    if sorted(by_id) != list(range(len(by_id))):
        raise CheckpointError(f"{path}: the ids of id2label are {sorted(by_id)}, expected 0 .. {len(by_id) - 1}")
    return tuple(by_id[index] for index in range(len(by_id)))


def _classifier_dropout(content: dict[str, Any], path: Path) -> float | None:
    probability = member(content, "classifier_dropout", float, path)
    if probability is not None and not 0 <= probability <= 1:
        raise CheckpointError(f"{path}: classifier_dropout is {probability!r:.60}, expected a probability from 0 to 1")
    return probability
