"""Open a model folder: every tensor is accounted for, and initial weights are used only on request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertkit.architectures import Network, architecture_of
from bertkit.architectures.tensor_names import TensorNames
from bertkit.checkpoint.checkpoint import Checkpoint, check_label_names
from bertkit.checkpoint.config_file import PublishedConfig, default_label_names, read_config
from bertkit.checkpoint.generation_rules import read_generation_rules
from bertkit.checkpoint.late_interaction import read_late_interaction
from bertkit.checkpoint.limits import limits_of
from bertkit.checkpoint.network_values import initialize_new, load_projection, load_stored, some_of, with_history
from bertkit.checkpoint.sentence import (
    COLBERT_LAYER,
    SentenceSettings,
    read_activation,
    read_sentence_settings,
    refuse_prompts,
)
from bertkit.checkpoint.sparse import read_sparse_settings
from bertkit.checkpoint.stored_parts import by_canonical_name, form_of_head, heads_stored, label_names_stored
from bertkit.checkpoint.trained_task import read_task
from bertkit.checkpoint.weights import StoredTensor, ignored, stored_tensors
from bertkit.errors import CheckpointError, MissingHeadError, UsageError, check_several, warn
from bertkit.files.json_files import read_json
from bertkit.heads import HEADS, HEADS_WITH_LABELS, OUTPUT_ACTIVATIONS, poolings_of
from bertkit.heads.projection import output_width
from bertkit.locate import sentence_modules, transformer_folder
from bertkit.tokenizer import Tokenizer
from bertkit.transformer.modules import as_torch, in_arrays


def open_checkpoint(
    directory: Path,
    *,
    heads: Sequence[str] | None = None,
    new: Collection[str] = (),
    label_names: Sequence[str] | None = None,
    ignore_tensors: Collection[str] = (),
    ignore_config_keys: Collection[str] = (),
    dtype: str = "float32",
    seed: int = 0,
    num_vectors: int = 1,
    siamese: bool = False,
) -> Checkpoint:
    """Open a published model directory.

    Args:
        heads: heads to load, names from HEADS; None: all stored heads. Stored weights of other heads are skipped only
            if ``heads`` is given.
        new: heads, or "pooler", that get initial weights instead of stored ones. Where heads share their first layers
            (ModernBERT's ``head.``), a new head copies those of a stored head.
        label_names: the labels of a new classification head; None: LABEL_0 and LABEL_1.
        ignore_tensors: stored tensors to skip: names, or patterns such as ``cls.extra.*``.
        ignore_config_keys: unknown config keys to ignore.
        dtype: name of the dtype of all parameters; stored values are converted.
        seed: seed of initial weights.
        num_vectors: number of sentence vectors in the input of a new vector_classification head: 2 for pairs of texts.
        siamese: a new one has the input (u, v, |u - v|), from the sentence vectors of a pair.

    Raises:
        CheckpointError: something is missing, unexpected, inconsistent or unsafe.
        MissingHeadError: a head in ``heads`` is neither stored nor in ``new``.
        UsageError: an unknown head, or a str instead of several names.
    """
    check_several("heads", () if heads is None else heads)
    check_several("new", new, in_order=False)
    check_several("ignore_tensors", ignore_tensors, in_order=False)
    check_several("ignore_config_keys", ignore_config_keys, in_order=False)
    settings, late = read_sentence_settings(directory), read_late_interaction(directory)
    folder = transformer_folder(directory)
    config = read_config(folder, ignore_config_keys)
    record = architecture_of(config.transformer)
    names = record.names
    tensors = {name: one for name, one in stored_tensors(folder).items() if not ignored(name, ignore_tensors)}
    stored = by_canonical_name(tensors, names, folder)
    if late is not None:
        stored.pop(COLBERT_LAYER, None)
    stored_heads = heads_stored(stored, record, config, folder, heads)
    if heads is None:
        heads = list(dict.fromkeys([*stored_heads, *(part for part in new if part != "pooler")]))
    _check_heads(heads, new, stored_heads, names, directory)
    if "masked_lm" in heads and names.tied and not config.is_tied:
        raise CheckpointError(
            f"{folder / 'config.json'} has tie_word_embeddings=False: a masked_lm head with a matrix of its own is not "
            "supported; name other heads in heads=[...], [] for none"
        )
    has_pooler = names.signature_tensors.get("pooler") in stored or "pooler" in new
    if not has_pooler and any(record.reads_pooler(head, config.transformer) for head in heads):
        raise MissingHeadError(
            f"{directory} has no pooler, which {', '.join(heads)} requires: pass new=[..., 'pooler'] to start one"
        )
    if set(new).isdisjoint(HEADS_WITH_LABELS):
        if label_names is not None:
            raise UsageError("label_names requires a new classification head: the labels of a stored head are fixed")
        label_names = label_names_stored(stored, stored_heads, names, config, folder)
    elif label_names is None:
        label_names = default_label_names(2)
    else:
        check_label_names(label_names)
    num_layers = record.num_stored_layers(config.transformer)
    if num_layers > len(stored):  # before building layers that are not stored
        raise CheckpointError(
            f"{folder}: its config has {num_layers} layers, but only {len(stored)} tensors are stored"
        )
    read = settings or SentenceSettings(layers=late.layers if late is not None else ())
    sentence = _sentence_arguments(read, directory, config.transformer.hidden_size)
    if "vector_classification" in new:
        sentence |= {"num_vectors": num_vectors, "siamese": siamese}
    elif "vector_classification" in heads:
        sentence |= form_of_head(stored, names, config, sentence)
    with in_arrays():
        network = Network(
            config.transformer,
            heads,
            with_pooler=has_pooler,
            num_labels=len(label_names) if label_names else 2,
            classifier_dropout=config.classifier_dropout,
            **sentence,
        )
    if new:
        network = as_torch(network)
    provenance = initialize_new(network, names, new, seed)
    provenance |= load_stored(network, stored, names, new, set(new) - set(stored_heads), dtype, folder)
    provenance |= load_projection(network, directory, dtype)
    are_chosen = bool(set(stored_heads) - set(heads) or set(stored_heads) & set(new))  # the heads to load
    _check_all_used(stored, stored.keys() - provenance.keys(), names, are_chosen, folder)
    tokenizer = _tokenizer(folder, config.transformer.vocab_size)
    reads_last = any(record.heads[head].input(config.transformer) == "last" for head in set(heads) - set(new))
    if reads_last and config.pad_token_id == tokenizer.sep_id:
        raise CheckpointError(
            f"{folder / 'config.json'} has pad_token_id={config.pad_token_id}, the id that ends every text: the class "
            "of transformers reads the last token with another id, which is not supported; write null if the "
            "classifier was trained on the end of a text"
        )
    if settings is None and late is None:
        limits, _ = limits_of(folder) if sentence_modules(directory) else ({}, folder)
        if "sequence_classification" in stored_heads:
            refuse_prompts(directory)  # of a cross-encoder
        if limit := limits.get("max_seq_length"):
            tokenizer = replace(tokenizer, model_max_length=limit)
    network.eval()
    longest = config.transformer.max_position_embeddings
    return Checkpoint(
        network,
        tokenizer,
        sentence=settings,
        sparse=read_sparse_settings(directory),
        late=late,
        label_names=tuple(label_names) if label_names else None,
        problem_type=config.problem_type,
        score_activation=_score_activation(directory, config),
        trained=read_task(
            folder,
            [head for head in heads if head not in new],
            label_names,
            config.problem_type,
            min(tokenizer.model_max_length or longest, longest),
        ),
        generation=read_generation_rules(folder),
        provenance=with_history(provenance, network, folder),
    )


def _check_heads(
    heads: Sequence[str], new: Collection[str], stored: Sequence[str], names: TensorNames, directory: Path
) -> None:
    """Check that every head to load is stored or new.

    Raises:
        UsageError: an unknown head, a new one that is not loaded, or several classifiers.
        MissingHeadError: a head that is neither.
    """
    if unknown := set(new) - set(heads) - {"pooler"}:
        raise UsageError(f"new={sorted(unknown)}: expected 'pooler' or any of heads={heads}")
    for head in heads:
        if head not in HEADS:
            raise UsageError(f"unknown head {head!r}: expected one of {', '.join(HEADS)}")
        if head not in stored and head not in new:
            raise MissingHeadError(
                f"{directory} has no {head} head (it has: {', '.join(stored) or 'none'}); choose a model that "
                f"was trained with one, or pass new=[{head!r}] to start one from initial weights and train it"
            )
    if sum(head in names.classifier_heads for head in heads) > 1:
        raise UsageError(f"heads={heads}: a published model has one classifier; name the one you want in heads=[...]")


def _check_all_used(
    stored: dict[str, StoredTensor], unused: Collection[str], names: TensorNames, are_heads_chosen: bool, folder: Path
) -> None:
    """Raise a CheckpointError for stored tensors that have no place in the network, except those of heads that the
    caller did not choose."""
    expected = (*names.unused_parts, *(names.head_parts if are_heads_chosen else ()))
    unexpected = {
        stored[name].name
        for name in unused
        if not (name in names.tied or names.is_constant(name) or name.startswith(expected))
    }
    if unexpected:
        patterns = _patterns(unexpected, {tensor.name for tensor in stored.values()})
        raise CheckpointError(
            f"{folder} holds tensors that this model lacks: {some_of(unexpected)}; pass ignore_tensors={patterns} to "
            f"bertkit.load to skip them, or make a copy without them: bertkit convert {folder} --out NEW_FOLDER "
            f"--ignore-tensors {' '.join(map(repr, patterns))}"
        )


def _patterns(names: Collection[str], all_names: Collection[str]) -> list[str]:
    """Few patterns for ``ignore_tensors`` that match all ``names`` and no other of ``all_names``."""
    patterns = []
    for name in sorted(names):
        parts = name.split(".")
        starts = (".".join(parts[:end]) + "." for end in range(1, len(parts)))
        own = (start for start in starts if all(one in names for one in all_names if one.startswith(start)))
        patterns.append(next((f"{start}*" for start in own), name))
    return list(dict.fromkeys(patterns))


def _tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """The tokenizer of a folder.

    Raises:
        CheckpointError: it has more entries than the word embedding has rows.
    """
    tokenizer = Tokenizer.load(folder)
    if len(tokenizer.vocabulary) > vocab_size:
        raise CheckpointError(
            f"{folder}: the vocabulary has {len(tokenizer.vocabulary)} entries, the word embedding has only "
            f"{vocab_size} rows: tokenizer and weights belong to different models"
        )
    if len(tokenizer.vocabulary) < vocab_size * 0.75:  # published models have some spare rows
        warn(
            f"{folder}: the vocabulary has {len(tokenizer.vocabulary)} entries, the word embedding {vocab_size} rows: "
            "unless it is meant so, a file of the tokenizer is cut off or of another model, and results are wrong"
        )
    return tokenizer


def _sentence_arguments(settings: SentenceSettings, directory: Path, hidden_size: int) -> dict[str, Any]:
    """Arguments of `Network` for these settings.

    Raises:
        CheckpointError: widths of consecutive layers that differ.
    """
    try:
        output_width(settings.layers, hidden_size * len(poolings_of(settings.pooling)))
    except UsageError as error:
        raise CheckpointError(f"{directory / 'modules.json'}: {error}") from None
    return {"pooling": settings.pooling, "projection": settings.layers, "normalize": settings.normalize}


def _score_activation(directory: Path, config: PublishedConfig) -> str | None:
    """The activation of the scores of a cross-encoder, from any of the files that sentence-transformers writes it to;
    it reads the first of them only next to a modules.json."""
    path = directory / "config_sentence_transformers.json"
    content = read_json(path) if sentence_modules(directory) else None
    name = read_activation(content or {}, path) or config.score_activation
    if name is not None and name not in OUTPUT_ACTIVATIONS:
        raise CheckpointError(
            f"{directory} has scores with the activation {name}; supported: {', '.join(OUTPUT_ACTIVATIONS)}"
        )
    return name
