"""Save a model folder that transformers and sentence-transformers can open."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertkit.architectures.tensor_names import PROJECTION
from bertkit.checkpoint.checkpoint import Checkpoint
from bertkit.checkpoint.config_file import PublishedConfig, config_json
from bertkit.checkpoint.content_hash import values_sha256
from bertkit.checkpoint.own_record import write_record
from bertkit.checkpoint.sentence import write_sentence_settings
from bertkit.checkpoint.sparse import write_sparse_settings
from bertkit.checkpoint.trained_task import task_json
from bertkit.errors import CheckpointError
from bertkit.files.json_files import write_json
from bertkit.files.whole_files import whole_folder
from bertkit.heads import HEADS_WITH_LABELS, KINDS
from bertkit.later import Tensor, later_module, torch

_DTYPES = ("float32", "float16", "bfloat16")  # in which libraries store weights


def check_savable(checkpoint: Checkpoint) -> None:
    """Check that a model is not of a kind that can only be opened, before it is trained.

    Raises:
        CheckpointError: a late interaction or an inference-free sparse model.
    """
    if checkpoint.late is not None:
        raise CheckpointError("late interaction models cannot be saved: copy the folder")
    if "masked_lm" in checkpoint.network.heads and checkpoint.sparse.query_weights is not None:
        raise CheckpointError("inference-free sparse models cannot be saved: copy the folder")


def save_checkpoint(
    checkpoint: Checkpoint,
    directory: str | Path,
    *,
    overwrite: bool = False,
    parameters: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the directory atomically.

    Args:
        parameters: parameters by name; None: the current ones of the network.

    Raises:
        UsageError: the directory exists and is not empty, unless ``overwrite``.
        CheckpointError: no published class has this combination of heads.
        OSError: the files cannot be written, for example because the disk is full.
    """
    check_savable(checkpoint)
    network = checkpoint.network
    record, heads = network.architecture, frozenset(network.heads)
    classes = {frozenset(KINDS[kind]): name for name, kind in record.published_classes().items()}
    if heads not in classes:
        raise CheckpointError(
            f"no published model has exactly the heads {', '.join(sorted(heads))}: save with some of them"
        )
    is_causal_lm = heads == {"masked_lm"} and network.config.is_decoder
    has_labels = not heads.isdisjoint(HEADS_WITH_LABELS)
    config = PublishedConfig(
        network.config,
        published_class=record.causal_class if is_causal_lm else classes[heads],
        label_names=checkpoint.label_names if has_labels else None,
        problem_type=checkpoint.problem_type,
        classifier_dropout=network.classifier_dropout,
        score_activation=checkpoint.score_activation,
    )
    vocabulary = checkpoint.tokenizer.vocabulary
    special_ids = {
        name: vocabulary.id(token) if token in vocabulary else None
        for name, token in asdict(vocabulary.special).items()
    }
    values = dict(network.named_parameters()) if parameters is None else parameters
    stored = {name: value.detach().cpu().contiguous() for name, value in values.items()}
    projection = {name.removeprefix(PROJECTION): value for name, value in stored.items() if name.startswith(PROJECTION)}
    tensors = {record.names.published(name): stored[name] for name in stored if not name.startswith(PROJECTION)}
    tensors = {
        name: value.T.contiguous() if record.names.is_transposed(name) else value for name, value in tensors.items()
    }
    if not heads:  # an encoder without heads is stored without the prefix
        tensors = {name.removeprefix(record.names.prefix): value for name, value in tensors.items()}
    with whole_folder(directory, overwrite=overwrite) as folder:
        write_json(folder / "config.json", config_json(config, special_ids))
        save_file = later_module("safetensors.torch").save_file
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        if is_causal_lm and checkpoint.generation:
            write_json(folder / "generation_config.json", checkpoint.generation)
        checkpoint.tokenizer.save(folder, with_types=getattr(network.config, "type_vocab_size", 0) > 1)
        if checkpoint.sentence is not None:
            write_sentence_settings(folder, checkpoint.sentence, network.config.hidden_size, projection)
        if "masked_lm" in heads and not checkpoint.sparse.are_usual:
            write_sparse_settings(folder, checkpoint.sparse)
        content = {"provenance": _provenance_json(checkpoint, stored)}
        if checkpoint.trained is not None:
            content["task"] = task_json(checkpoint.trained)
            if checkpoint.trained.card:
                (folder / "README.md").write_text(checkpoint.trained.card, encoding="utf-8", newline="\n")
        write_record(folder, content)


def _provenance_json(checkpoint: Checkpoint, stored: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """The origin of each tensor; of initial values also their hashes in each dtype, as others may convert them."""
    published = checkpoint.network.architecture.names.published
    values = {published(name): value for name, value in stored.items()}
    record: dict[str, dict[str, Any]] = {}
    for name, origin in sorted(checkpoint.provenance.items()):
        record[name] = asdict(origin)
        if origin.origin == "initialized":
            record[name]["sha256"] = [values_sha256(values[name].to(getattr(torch, dtype))) for dtype in _DTYPES]
    return record
