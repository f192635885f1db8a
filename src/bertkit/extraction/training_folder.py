"""Networks for training from an encoder or a checkpoint, and their folders in the published form."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bertkit.architectures import Network
from bertkit.checkpoint.config_file import PublishedConfig, config_json
from bertkit.checkpoint.opening import open_checkpoint
from bertkit.errors import UsageError
from bertkit.extraction.opening import open_extractor
from bertkit.extraction.settings import NAME, ExtractionSettings, read_settings
from bertkit.extraction.training_network import ENCODER, ExtractionNetwork
from bertkit.extraction.training_settings import ExtractionTrainingSettings
from bertkit.files.json_files import write_json
from bertkit.heads.kinds import KINDS
from bertkit.locate import locate, transformer_folder
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.vocabulary import Vocabulary
from bertkit.tokenizer.wordpiece import WordPiece
from bertkit.transformer.modules import as_torch
from bertkit.vocabulary_extension.embeddings import extend_embeddings

_LABEL, _TEXT = "<<ENT>>", "<<SEP>>"


def new_network(model: str, chosen: ExtractionTrainingSettings) -> tuple[ExtractionNetwork, Tokenizer]:
    """An encoder with new layers, and its tokenizer with the markers of labels and text.

    Raises:
        UsageError: the tokenizer is not WordPiece, or the model too short for the spans.
    """
    checkpoint = open_checkpoint(transformer_folder(locate(model)), heads=())
    tokenizer = _with_markers(checkpoint.tokenizer, model)
    extend_embeddings(checkpoint.network, checkpoint.tokenizer, tokenizer)
    encoder = _without_pooler(checkpoint.network)
    settings = ExtractionSettings(
        encoder={}, labels_encoder=None, of_tokens=chosen.scorer == "token", hidden_size=encoder.config.hidden_size,
        max_width=chosen.max_width, max_words=max(384, 2 * chosen.max_width), num_lstm_layers=0,
        reads_label_marker=False, label_marker=_LABEL, text_marker=_TEXT,
        label_marker_id=tokenizer.vocabulary.id(_LABEL),
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.training.seed)
        return ExtractionNetwork(encoder, settings, chosen.dropout), tokenizer


def saved_network(folder: Path, dropout: float) -> tuple[ExtractionNetwork, Tokenizer]:
    """The network of a checkpoint, and its tokenizer."""
    extractor: Any = open_extractor(folder, device="cpu")
    runner = extractor.runner
    network = ExtractionNetwork(_without_pooler(as_torch(runner.network)), read_settings(folder), dropout)
    network.load_state_dict(
        {name: torch.as_tensor(each) for name, each in extractor._layers.values.items()}, strict=False
    )
    return network, runner.tokenizer


def save_network(
    network: ExtractionNetwork, tokenizer: Tokenizer, folder: Path, parameters: Mapping[str, Tensor] | None = None
) -> None:
    """Write config, weights and tokenizer to an existing folder.

    Args:
        parameters: parameters by name; None: the current ones.
    """
    settings, encoder = network.settings, network.encoder
    values = dict(network.named_parameters()) if parameters is None else parameters
    names, tensors = encoder.architecture.names, dict[str, Tensor]()
    for name, value in values.items():
        stored = value.detach().cpu()
        if name.startswith("encoder."):
            own = name.removeprefix("encoder.")
            stored = stored.T if names.is_transposed(own) else stored
            name = ENCODER + names.published(own).removeprefix(names.prefix)
        tensors[name] = stored.contiguous()
    record = encoder.architecture
    plain = next(cls for cls, kind in record.published_classes().items() if not KINDS[kind])
    vocabulary = tokenizer.vocabulary
    special = {name: vocabulary.id(t) if t in vocabulary else None for name, t in asdict(vocabulary.special).items()}
    content = {
        "model_type": "gliner", "name": "span level gliner" if not settings.of_tokens else "token level gliner",
        "encoder_config": config_json(PublishedConfig(encoder.config, published_class=plain), special),
        "hidden_size": settings.hidden_size, "max_width": settings.max_width, "max_len": settings.max_words,
        "num_rnn_layers": settings.num_lstm_layers, "vocab_size": encoder.config.vocab_size,
        "span_mode": "token_level" if settings.of_tokens else "markerV0", "subtoken_pooling": "first",
        "words_splitter_type": "whitespace", "fuse_layers": False, "embed_ent_token": settings.reads_label_marker,
        "ent_token": settings.label_marker, "sep_token": settings.text_marker,
        "class_token_index": settings.label_marker_id,
    }  # fmt: skip
    write_json(folder / NAME, content)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(folder, with_types=getattr(encoder.config, "type_vocab_size", 0) > 1)


def _with_markers(tokenizer: Tokenizer, model: str) -> Tokenizer:
    """The tokenizer with the markers as last entries, which no text matches: "<" is a word for itself."""
    engine = tokenizer.engine
    if not isinstance(engine, WordPiece):
        raise UsageError(f"{model} has no WordPiece tokenizer, to which markers are added: start from a BERT or MiniLM")
    added = [marker for marker in (_LABEL, _TEXT) if marker not in engine.vocabulary]
    vocabulary = Vocabulary((*engine.vocabulary.tokens, *added), engine.vocabulary.special)
    return replace(tokenizer, engine=replace(engine, vocabulary=vocabulary, num_added=0))


def _without_pooler(network: Network) -> Network:
    """A trainable copy without heads and pooler."""
    copy = Network(network.config, (), with_pooler=False)
    values = network.state_dict()
    copy.load_state_dict({name: values[name] for name in copy.state_dict()})
    return copy.train()
