"""Save a model directory that transformers and sentence-transformers open."""

from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save_file

from bertkit.checkpoint import names
from bertkit.checkpoint.checkpoint import Checkpoint
from bertkit.checkpoint.config_file import PublishedConfig, config_json
from bertkit.checkpoint.sentence import write_sentence_settings
from bertkit.errors import CheckpointError
from bertkit.heads import KINDS
from bertkit.json_files import write_json
from bertkit.whole_files import whole_folder

_ARCHITECTURE_OF_HEADS = {frozenset(KINDS[kind]): architecture for architecture, kind in names.ARCHITECTURES.items()}


def save_checkpoint(checkpoint: Checkpoint, directory: str | Path, *, overwrite: bool = False) -> None:
    """Write the directory, whole or not at all.

    Raises:
        UsageError: the directory exists and is not empty, unless ``overwrite``.
        CheckpointError: a combination of heads that the published layout has no class for.
    """
    network = checkpoint.network
    heads = frozenset(network.heads)
    if heads not in _ARCHITECTURE_OF_HEADS:
        raise CheckpointError(
            f"no published model has exactly the heads {', '.join(sorted(heads))}: save with some of them"
        )
    has_labels = bool(heads & {"sequence_classification", "token_classification"})
    config = PublishedConfig(
        network.config,
        architecture=_ARCHITECTURE_OF_HEADS[heads],
        label_names=checkpoint.label_names if has_labels else None,
        problem_type=checkpoint.problem_type,
        classifier_dropout=network.classifier_dropout,
    )
    vocabulary = checkpoint.tokenizer.vocabulary
    pad_id = vocabulary.id(vocabulary.special.pad) if vocabulary.special.pad in vocabulary else None
    tensors = {
        names.published_name(name): value.detach().cpu().contiguous() for name, value in network.named_parameters()
    }
    if not heads:  # an encoder alone is stored without the prefix
        tensors = {name.removeprefix("bert."): value for name, value in tensors.items()}
    with whole_folder(directory, overwrite=overwrite) as folder:
        write_json(folder / "config.json", config_json(config, pad_id))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        checkpoint.tokenizer.save(folder)
        if checkpoint.sentence is not None:
            write_sentence_settings(folder, checkpoint.sentence, network.config.hidden_size)
        record = {name: asdict(origin) for name, origin in sorted(checkpoint.provenance.items())}
        write_json(folder / "bertkit.json", {"provenance": record})
