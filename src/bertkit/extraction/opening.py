"""Open a folder in GLiNER's published form."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertkit.architectures import Network, architecture_of, prepare
from bertkit.checkpoint.config_file import parse_config
from bertkit.checkpoint.network_values import load_stored, some_of
from bertkit.checkpoint.own_record import NAME as OWN_RECORD
from bertkit.checkpoint.own_record import read_section
from bertkit.checkpoint.stored_parts import by_canonical_name
from bertkit.checkpoint.weights import StoredTensor, read_arrays, stored_tensors
from bertkit.device import is_cpu, resolve_device, weights_dtype_name
from bertkit.errors import CheckpointError
from bertkit.extraction.extractor import Extractor
from bertkit.extraction.label_encoder import LabelEncoder
from bertkit.extraction.layers import Layers, Shapes, lstm_shapes, shapes_of
from bertkit.extraction.relations import RelationScorer
from bertkit.extraction.schema_extractor import SchemaExtractor, shapes_of_heads
from bertkit.extraction.scorer import SpanScorer, TokenScorer
from bertkit.extraction.settings import (
    NAME,
    ExtractionSettings,
    SchemaSettings,
    read_schema_settings,
    read_settings,
    reads_schemas,
)
from bertkit.files.json_files import member
from bertkit.inference.auto_precision import PrecisionChoice, choose_precision
from bertkit.inference.runner import Runner
from bertkit.later import torch
from bertkit.locate import locate
from bertkit.tokenizer import Tokenizer
from bertkit.transformer.kernels.choices import multiplies_panels_fast
from bertkit.transformer.modules import as_torch, in_arrays
from bertkit.transformer.prepared.encoder import runs_in_arrays

SECTION = "extraction"
"""Section of the folder's own record that holds the threshold."""

_ENCODERS = "token_rep_layer."


@dataclass(frozen=True)
class _Weights:
    """The weights of a model, and how they are opened."""

    folder: Path
    stored: Mapping[str, StoredTensor]
    dtype: str
    choice: PrecisionChoice  # of the encoders; "auto" for the first
    device: Any  # None: the CPU, without torch where that is as fast


def open_extractor(
    name: str | Path, *, precision: str = "float32", device: str = "auto"
) -> Extractor | SchemaExtractor:
    """Open an extraction model, in the form of GLiNER or of GLiNER2.

    Args:
        name: a folder, or a name as in `bertkit.load`.
        precision, device: as in `bertkit.load`.

    Raises:
        CheckpointError: no such model, or one that is incomplete, unsupported or unsafe to open.
        UsageError: an unknown precision or device.
    """
    folder = locate(name)
    settings = read_schema_settings(folder) if reads_schemas(folder) else read_settings(folder)
    where = None if is_cpu(device) else resolve_device(device)
    dtype = weights_dtype_name("float32" if precision == "auto" else precision)
    weights = _Weights(folder, stored_tensors(folder), dtype, PrecisionChoice(precision, ""), where)
    return (
        _schema_extractor(settings, weights) if isinstance(settings, SchemaSettings) else _extractor(settings, weights)
    )


def _extractor(settings: ExtractionSettings, weights: _Weights) -> Extractor:
    folder = weights.folder
    text, weights = _runner(settings.encoder, f"{_ENCODERS}bert_layer.model.", folder, weights)
    labels, labels_width = None, None
    if settings.labels_encoder is not None:
        tokenizer = folder / "labels_tokenizer"
        labels, _ = _runner(settings.labels_encoder, f"{_ENCODERS}labels_encoder.model.", tokenizer, weights)
        labels_width = labels.network.config.hidden_size
    shapes = shapes_of(settings, text.network.config.hidden_size, labels_width)
    unused = lstm_shapes(settings.hidden_size, 9) if labels_width is not None else {}  # published, and never applied
    encoders = (f"{_ENCODERS}bert_layer.", f"{_ENCODERS}labels_encoder.")
    layers = _layers(shapes, weights, encoders, unused)
    _check_markers(settings, text.tokenizer, folder)
    scorer = TokenScorer(layers) if settings.of_tokens else SpanScorer(layers, settings.max_width)
    encoder = None if labels is None else LabelEncoder(labels, layers, scorer.shared_labels)
    relation_scorer = None
    if settings.relations is not None:
        spans = scorer if isinstance(scorer, SpanScorer) else SpanScorer(layers, settings.max_width)
        relation_scorer = RelationScorer(layers, settings.relations, spans)
    extractor = Extractor(text, settings, layers, scorer, encoder, relation_scorer, _threshold(folder))
    extractor.precision = weights.choice
    return extractor


def _threshold(folder: Path) -> float:
    """The threshold of scores that is stored in a folder, or 0.5."""
    threshold = member(read_section(folder, SECTION) or {}, "threshold", float, folder / OWN_RECORD, 0.5)
    if not 0 <= threshold <= 1:
        raise CheckpointError(f"{folder / OWN_RECORD}: threshold is {threshold}: expected a number from 0 to 1")
    return threshold


def _schema_extractor(settings: SchemaSettings, weights: _Weights) -> SchemaExtractor:
    head = "span_rep."
    text, weights = _runner(settings.encoder, "encoder.", weights.folder, weights)
    shapes = shapes_of_heads(text.network.config.hidden_size, with_transformer=settings.counts_by_transformer)
    stored = {name.replace(head, "span_rep_layer.", 1): one for name, one in weights.stored.items()}
    layers = _layers(shapes, replace(weights, stored=stored), ("encoder.",), {})
    extractor = SchemaExtractor(text, layers, settings.max_width, _threshold(weights.folder))
    extractor.precision = weights.choice
    return extractor


def _runner(content: dict[str, Any], prefix: str, tokenizer_folder: Path, weights: _Weights) -> tuple[Runner, _Weights]:
    """An encoder and its tokenizer; and the weights with the precision, chosen for this encoder if it was "auto".

    Args:
        prefix: of its tensors.

    Raises:
        CheckpointError: it is incomplete, or has tensors that are not used.
    """
    folder = weights.folder
    config = parse_config(content, folder / NAME).transformer
    names = architecture_of(config).names
    tensors = {name.removeprefix(prefix): one for name, one in weights.stored.items() if name.startswith(prefix)}
    canonical = by_canonical_name(tensors, names, folder)
    with in_arrays():
        network = Network(config, (), with_pooler=False)
    loaded = load_stored(network, canonical, names, (), (), weights.dtype, folder)
    unused = (*names.unused_parts, f"{names.prefix}pooler.")
    if unexpected := {
        canonical[name].name
        for name in canonical.keys() - loaded.keys()
        if not (name in names.tied or names.is_constant(name) or name.startswith(unused))
    }:
        raise CheckpointError(f"{folder} holds tensors that this model lacks: {some_of(unexpected)}")
    tokenizer = Tokenizer.load(tokenizer_folder)
    if len(tokenizer.vocabulary) > config.vocab_size:
        raise CheckpointError(
            f"{tokenizer_folder}: the vocabulary has {len(tokenizer.vocabulary)} entries, the word embedding has only "
            f"{config.vocab_size} rows: tokenizer and weights belong to different models"
        )
    if weights.choice.precision == "auto":
        choice = choose_precision(as_torch(network).to(weights.device or "cpu").encoder, tokenizer)
        weights = replace(weights, choice=choice)
    precision = weights.choice.precision
    if weights.device is not None or not runs_in_arrays(network.encoder, precision):
        network = as_torch(network).to(weights.device or "cpu")
    return Runner(network, tokenizer, prepare(network.encoder, precision)), weights


def _layers(shapes: Shapes, weights: _Weights, encoders: tuple[str, ...], unused: Shapes) -> Layers:
    """The layers after the encoders.

    Args:
        encoders: prefixes of the tensors of these.
        unused: tensors that may be stored, too.

    Raises:
        CheckpointError: one is missing, has another shape, or is not used.
    """
    stored = {name: one for name, one in weights.stored.items() if not name.startswith(encoders)}
    for name, wrong in (
        ("lacks the tensors", shapes.keys() - stored.keys()),
        ("holds tensors that this model lacks:", stored.keys() - shapes.keys() - unused.keys()),
    ):
        if wrong:
            raise CheckpointError(f"{weights.folder} {name} {some_of(wrong)}")
    for name, shape in shapes.items():
        if stored[name].shape != shape:
            raise CheckpointError(
                f"{weights.folder}: {name} has shape {list(stored[name].shape)}; its config requires {list(shape)}"
            )
    arrays = read_arrays([stored[name] for name in shapes], weights.dtype)
    values = {name: arrays[stored[name].name] for name in shapes}
    if weights.device is not None or not multiplies_panels_fast(weights.dtype):
        values = {name: torch.from_numpy(value).to(weights.device or "cpu") for name, value in values.items()}
    return Layers(values, weights.dtype)


def _check_markers(settings: ExtractionSettings, tokenizer: Tokenizer, folder: Path) -> None:
    """Check that the tokenizer has the markers of labels and relations, with the stated ids.

    Raises:
        CheckpointError: it does not.
    """
    markers = [("class_token_index", settings.label_marker, settings.label_marker_id)]
    if settings.relations is not None:
        markers.append(("rel_token_index", settings.relations.marker, settings.relations.marker_id))
    for key, marker, stated in markers if settings.labels_encoder is None else ():
        if marker not in tokenizer.vocabulary or tokenizer.vocabulary.id(marker) != stated:
            raise CheckpointError(
                f"{folder}: {NAME} says {key}={stated}, and the tokenizer has no {marker} with this id: its files "
                "belong to another model"
            )
