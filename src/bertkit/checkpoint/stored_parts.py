"""What a model folder stores: its tensors by their names in the architecture, its heads and their labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertkit.architectures import Architecture
from bertkit.architectures.tensor_names import TensorNames, module_of
from bertkit.checkpoint.config_file import PublishedConfig, default_label_names
from bertkit.checkpoint.weights import StoredTensor
from bertkit.errors import CheckpointError
from bertkit.heads import HEADS_WITH_LABELS, poolings_of
from bertkit.heads.projection import output_width


def by_canonical_name(stored: dict[str, StoredTensor], names: TensorNames, folder: Path) -> dict[str, StoredTensor]:
    """Tensors by their published name in the newest layout.

    Raises:
        CheckpointError: two names for one tensor.
    """
    has_prefix = any(name.startswith(names.prefix) for name in stored)
    canonical: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        key = names.canonical(name, has_prefix=has_prefix)
        if key in canonical:
            raise CheckpointError(f"{folder} holds {key!r} twice, as {canonical[key].name!r} and {name!r}")
        canonical[key] = tensor
    for copy, original in names.tied.items():  # some checkpoints store only the tied copy
        if copy in canonical and original not in canonical:
            canonical[original] = canonical[copy]
    return canonical


def heads_stored(
    stored: dict[str, StoredTensor],
    record: Architecture,
    config: PublishedConfig,
    folder: Path,
    wanted: Sequence[str] | None,
) -> list[str]:
    """Heads whose tensors are stored; the class in the config may have fewer."""
    names = record.names
    heads = [head for head, tensor in names.signature_tensors.items() if tensor in stored and head != "pooler"]
    possible = next((heads for tensor, heads in names.classifiers.items() if tensor in stored), ())
    if possible:
        kind = record.published_classes().get(config.published_class or "")
        named = [head for head in (kind, *(wanted or ())) if head in possible]
        if not named and len(possible) > 1 and wanted is None:
            raise CheckpointError(
                f"{folder} holds a classifier, and its config names no supported class for it: pass heads=[...] with "
                f"one of {', '.join(possible)} if it is one, else heads=[] to open it without the classifier"
            )
        heads.append([*named, *possible][0])
    return heads


def label_names_stored(
    stored: dict[str, StoredTensor], heads: Sequence[str], names: TensorNames, config: PublishedConfig, folder: Path
) -> tuple[str, ...] | None:
    """Label names of the stored classifier, one for each output: from the config, or LABEL_0, LABEL_1, ...

    Older files state ``num_labels``, and two default names for any number of labels.

    Raises:
        CheckpointError: another number of names or labels in the config, or a name of several labels.
    """
    with_labels = [head for head in heads if head in HEADS_WITH_LABELS]
    if not with_labels:
        return None
    shape = stored[names.published(f"{module_of(with_labels[-1])}.classifier.weight")].shape
    num_labels = shape[0] if shape else 0
    names_given = config.label_names
    if config.num_labels is not None and names_given == default_label_names(len(names_given or ())):
        names_given = None
    num_named = config.num_labels if names_given is None else len(names_given)
    if num_named not in (None, num_labels):
        raise CheckpointError(
            f"{folder}: the config names {num_named} labels, the classifier has {num_labels}: correct id2label in "
            'config.json, or pass ignore_config_keys=["id2label", "num_labels"] to bertkit.load for the names LABEL_0, '
            f"LABEL_1, ... (bertkit convert {folder} --out NEW_FOLDER --ignore-config-keys id2label num_labels)"
        )
    if names_given is None:
        return default_label_names(num_labels)
    if len(set(names_given)) < num_labels:
        repeated = next(name for name in names_given if names_given.count(name) > 1)
        raise CheckpointError(
            f"{folder}: id2label in config.json gives the name {repeated!r} to several labels, and predictions name "
            "labels: give each its own name"
        )
    return names_given


def form_of_head(
    stored: dict[str, StoredTensor], names: TensorNames, config: PublishedConfig, sentence: dict[str, Any]
) -> dict[str, Any]:
    """Form of the stored head over sentence vectors, by its width: W for texts, 2 W + 1 for pairs, and 3 W for pairs in
    the siamese form, whose vectors may come from further layers."""
    width = sum(stored[names.signature_tensors["vector_classification"]].shape[-1:])
    pooled = config.transformer.hidden_size * len(poolings_of(sentence["pooling"]))
    siamese = width == 3 * output_width(sentence["projection"], pooled)
    return {"siamese": siamese, "num_vectors": 2 if siamese or width == 2 * pooled + 1 else 1}
