"""Open a model folder: every tensor is accounted for, and initial weights are used only on request."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertkit.architectures import Architecture, Network, architecture_of, initialize
from bertkit.architectures.tensor_names import PROJECTION, TensorNames, module_of
from bertkit.checkpoint.checkpoint import Checkpoint, Provenance, check_label_names
from bertkit.checkpoint.config_file import PublishedConfig, read_config
from bertkit.checkpoint.content_hash import values_sha256
from bertkit.checkpoint.generation_rules import read_generation_rules
from bertkit.checkpoint.late_interaction import read_late_interaction
from bertkit.checkpoint.limits import limits_of
from bertkit.checkpoint.sentence import (
    COLBERT_LAYER,
    SentenceSettings,
    projection_tensors,
    read_activation,
    read_sentence_settings,
    refuse_prompts,
)
from bertkit.checkpoint.sparse import read_sparse_settings
from bertkit.checkpoint.trained_task import read_task
from bertkit.checkpoint.weights import StoredTensor, read_tensors, stored_tensors
from bertkit.errors import CheckpointError, MissingHeadError, UsageError
from bertkit.files.json_files import member, read_json
from bertkit.heads import HEADS, HEADS_WITH_LABELS, OUTPUT_ACTIVATIONS, poolings_of
from bertkit.heads.projection import output_width
from bertkit.locate import sentence_modules, transformer_folder
from bertkit.tokenizer import Tokenizer


def open_checkpoint(
    directory: Path,
    *,
    heads: Sequence[str] | None = None,
    new: Collection[str] = (),
    label_names: Sequence[str] | None = None,
    ignore_tensors: Collection[str] = (),
    ignore_config_keys: Collection[str] = (),
    dtype: torch.dtype = torch.float32,
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
        ignore_tensors: stored tensors to skip.
        ignore_config_keys: unknown config keys to ignore.
        dtype: dtype of all parameters; stored values are converted.
        seed: seed of initial weights.
        num_vectors: number of sentence vectors in the input of a new vector_classification head: 2 for pairs of texts.
        siamese: a new one has the input (u, v, |u - v|), from the sentence vectors of a pair.

    Raises:
        CheckpointError: something is missing, unexpected, inconsistent or unsafe.
        MissingHeadError: a head in ``heads`` is neither stored nor in ``new``.
    """
    settings, late = read_sentence_settings(directory), read_late_interaction(directory)
    folder = transformer_folder(directory)
    config = read_config(folder, ignore_config_keys)
    record = architecture_of(config.transformer)
    names = record.names
    stored = _by_canonical_name(stored_tensors(folder), names, folder)
    if late is not None:
        stored.pop(COLBERT_LAYER, None)
    stored_heads = _stored_heads(stored, record, config, folder, heads)
    if heads is None:
        heads = list(dict.fromkeys([*stored_heads, *(part for part in new if part != "pooler")]))
    if unknown := set(new) - set(heads) - {"pooler"}:
        raise UsageError(f"new={sorted(unknown)}: expected 'pooler' or any of heads={heads}")
    for head in heads:
        if head not in HEADS:
            raise UsageError(f"unknown head {head!r}: expected one of {', '.join(HEADS)}")
        if head not in stored_heads and head not in new:
            raise MissingHeadError(
                f"{directory} has no {head} head (it has: {', '.join(stored_heads) or 'none'}); choose a model that "
                f"was trained with one, or pass new=[{head!r}] to start one from initial weights and train it"
            )
    if sum(head in names.classifier_heads for head in heads) > 1:
        raise UsageError(f"heads={heads}: a published model has one classifier; name the one you want in heads=[...]")
    if "masked_lm" in heads and not config.is_tied:
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
        label_names = _label_names(stored, stored_heads, names, config, folder)
    elif label_names is None:
        label_names = ("LABEL_0", "LABEL_1")
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
        sentence |= _form_of_head(stored, names, config, sentence)
    with torch.device("meta"):
        network = Network(
            config.transformer,
            heads,
            with_pooler=has_pooler,
            num_labels=len(label_names) if label_names else 2,
            classifier_dropout=config.classifier_dropout,
            **sentence,
        )
    provenance = _initialize_new(network, names, new, seed)
    provenance |= _load(network, stored, names, new, set(new) - set(stored_heads), dtype, folder)
    provenance |= _load_projection(network, directory, dtype)
    unexpected = stored.keys() - provenance.keys() - names.tied.keys() - set(ignore_tensors)
    unexpected = {name for name in unexpected if not (names.is_constant(name) or name.startswith(names.unused_parts))}
    if set(stored_heads) - set(heads) or set(stored_heads) & set(new):  # the caller chose the heads to load
        unexpected = {name for name in unexpected if not name.startswith(names.head_parts)}
    if unexpected:
        raise CheckpointError(
            f"{folder} holds tensors that this model lacks: {_some(unexpected)}; pass ignore_tensors=[...] to skip them"
        )
    tokenizer = Tokenizer.load(folder)
    if len(tokenizer.vocabulary) > config.transformer.vocab_size:
        raise CheckpointError(
            f"{folder}: the vocabulary has {len(tokenizer.vocabulary)} entries, the word embedding has only "
            f"{config.transformer.vocab_size} rows: tokenizer and weights belong to different models"
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
        network=network.to(dtype),
        tokenizer=tokenizer,
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
        provenance=_with_history(provenance, network, folder),
    )


def _by_canonical_name(stored: dict[str, StoredTensor], names: TensorNames, folder: Path) -> dict[str, StoredTensor]:
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


def _stored_heads(
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


def _label_names(
    stored: dict[str, StoredTensor], heads: Sequence[str], names: TensorNames, config: PublishedConfig, folder: Path
) -> tuple[str, ...] | None:
    """Label names of the stored classifier, one for each output: from the config, or LABEL_0, LABEL_1, ..."""
    with_labels = [head for head in heads if head in HEADS_WITH_LABELS]
    if not with_labels:
        return None
    shape = stored[names.published(f"{module_of(with_labels[-1])}.classifier.weight")].shape
    num_labels = shape[0] if shape else 0
    num_named = config.num_labels if config.label_names is None else len(config.label_names)
    if num_named not in (None, num_labels):
        raise CheckpointError(f"{folder}: the config names {num_named} labels, the classifier has {num_labels}")
    if config.label_names is None:
        return tuple(f"LABEL_{index}" for index in range(num_labels))
    if len(set(config.label_names)) < num_labels:
        repeated = next(name for name in config.label_names if config.label_names.count(name) > 1)
        raise CheckpointError(
            f"{folder}: id2label in config.json gives the name {repeated!r} to several labels, and predictions name "
            "labels: give each its own name"
        )
    return config.label_names


def _form_of_head(
    stored: dict[str, StoredTensor], names: TensorNames, config: PublishedConfig, sentence: dict[str, Any]
) -> dict[str, Any]:
    """Form of the stored head over sentence vectors, by its width: W for texts, 2 W + 1 for pairs, and 3 W for pairs in
    the siamese form, whose vectors may come from further layers."""
    width = sum(stored[names.signature_tensors["vector_classification"]].shape[-1:])
    pooled = config.transformer.hidden_size * len(poolings_of(sentence["pooling"]))
    siamese = width == 3 * output_width(sentence["projection"], pooled)
    return {"siamese": siamese, "num_vectors": 2 if siamese or width == 2 * pooled + 1 else 1}


def _initialize_new(network: Network, names: TensorNames, new: Collection[str], seed: int) -> dict[str, Provenance]:
    provenance = {}
    for part in new:
        prefix = module_of(part)
        module = network.get_submodule(prefix).to_empty(device="cpu")
        initialize(module, network.config, seed)
        for name, _ in module.named_parameters():
            provenance[names.published(f"{prefix}.{name}")] = Provenance("initialized", f"seed {seed}")
    return provenance


def _load(
    network: Network,
    stored: dict[str, StoredTensor],
    names: TensorNames,
    new: Collection[str],
    not_stored: Collection[str],
    dtype: torch.dtype,
    folder: Path,
) -> dict[str, Provenance]:
    """Assign stored values to every parameter except those of new parts, and to the layers that new heads share."""
    of_new, of_not_stored = (tuple(f"{module_of(part)}." for part in parts) for parts in (new, not_stored))
    parameters = {name: parameter for name, parameter in network.named_parameters() if not name.startswith(PROJECTION)}
    published = {name: names.published(name) for name in parameters}
    taken_over = {
        name
        for name, stored_name in published.items()
        if name.startswith(of_not_stored) and stored_name.startswith(names.shared_parts) and stored_name in stored
    }
    wanted = {
        published[name]: (name, parameter)
        for name, parameter in parameters.items()
        if not name.startswith(of_new) or name in taken_over
    }
    if missing := wanted.keys() - stored.keys():
        raise CheckpointError(f"{folder} lacks {len(missing)} of {len(wanted)} tensors: {_some(missing)}")
    for name, (_, parameter) in wanted.items():
        expected = parameter.shape[::-1] if names.is_transposed(name) else parameter.shape
        if stored[name].shape != tuple(expected):
            raise CheckpointError(
                f"{folder}: {name} has shape {list(stored[name].shape)}; the config requires {list(expected)}"
            )
        if stored[name].dtype not in ("F64", "F32", "F16", "BF16"):
            raise CheckpointError(f"{folder}: {name} is stored as {stored[name].dtype}: expected floating point")
    copies = {
        copy
        for copy, original in names.tied.items()
        if copy in stored and original in wanted and "masked_lm" in network.heads
    }
    values = read_tensors([stored[name] for name in {*wanted, *copies}])
    for copy in copies:
        original = names.tied[copy]
        if not torch.equal(values[stored[copy].name], values[stored[original].name]):
            raise CheckpointError(f"{folder}: {copy} differs from {original}: an untied decoder is not supported")
    state = {}
    for name, (ours, _) in wanted.items():
        value = values[stored[name].name].to(dtype)
        state[ours] = value.T.contiguous() if names.is_transposed(name) else value
    network.load_state_dict(state, strict=False, assign=True)
    return {name: Provenance("loaded", stored[name].file.name) for name in wanted}


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


def _load_projection(network: Network, directory: Path, dtype: torch.dtype) -> dict[str, Provenance]:
    """Load the stored weights of the layers after Pooling."""
    expected = dict(network.projection.named_parameters())
    if not expected:
        return {}
    stored = projection_tensors(directory)
    if stored.keys() != expected.keys():
        raise CheckpointError(
            f"{directory}: the layers after Pooling hold the tensors {_some(stored.keys())}; expected "
            f"{_some(expected.keys())}"
        )
    for name, parameter in expected.items():
        if stored[name].shape != tuple(parameter.shape):
            raise CheckpointError(
                f"{stored[name].file}: {stored[name].name} has shape {list(stored[name].shape)}; its config requires "
                f"{list(parameter.shape)}"
            )
    values = {}
    for name, tensor in stored.items():
        values[name] = read_tensors([tensor])[tensor.name].to(dtype)
    network.projection.load_state_dict(values, assign=True)
    return {
        f"{PROJECTION}{name}": Provenance("loaded", str(stored[name].file.relative_to(directory))) for name in values
    }


def _score_activation(directory: Path, config: PublishedConfig) -> str | None:
    """The activation of the scores of a cross-encoder, from any of the files that sentence-transformers writes it
    to."""
    path = directory / "config_sentence_transformers.json"
    name = read_activation(read_json(path) or {}, path) or config.score_activation
    if name is not None and name not in OUTPUT_ACTIVATIONS:
        raise CheckpointError(
            f"{directory} has scores with the activation {name}; supported: {', '.join(OUTPUT_ACTIVATIONS)}"
        )
    return name


def _with_history(provenance: dict[str, Provenance], network: Network, folder: Path) -> dict[str, Provenance]:
    """Keep stored tensors that were never trained "initialized", so that their heads still refuse to predict.

    If any tensor of a layer differs from the values that bertkit stored, another library has trained the layer.
    """
    path = folder / "bertkit.json"
    record = member(read_json(path) or {}, "provenance", dict, path, {})
    history = {name: member(record, name, dict, path, {}) for name in provenance}
    initial = {  # older versions wrote the British spelling
        name for name, past in history.items() if past.get("origin") in ("initialized", "initialised")
    }
    published = network.architecture.names.published
    values = {published(name): value for name, value in network.named_parameters()}
    trained = set()
    for name in initial:
        hashes = member(history[name], "sha256", list, path)  # None: written by an older version
        if hashes is not None and values_sha256(values[name]) not in hashes:
            trained.add(_layer_of(name))
    return {
        name: Provenance("initialized", str(history[name].get("source", "")))
        if name in initial and _layer_of(name) not in trained
        else origin
        for name, origin in provenance.items()
    }


def _layer_of(name: str) -> str:
    return name.rpartition(".")[0]


def _some(names: Collection[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")
