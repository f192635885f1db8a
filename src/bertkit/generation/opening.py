"""Open a model for text generation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.architectures import architecture_of
from bertkit.checkpoint.config_file import is_encoder_decoder, read_config
from bertkit.checkpoint.generation_rules import rules_not_applied
from bertkit.device import resolve_device
from bertkit.errors import UsageError, warn
from bertkit.extraction.settings import is_extraction
from bertkit.locate import locate, transformer_folder
from bertkit.model import load
from bertkit.transformer import EncoderConfig

if TYPE_CHECKING:
    from bertkit.generation.causal import Causal
    from bertkit.generation.sequence_to_sequence import SequenceToSequence


def load_generator(name: str | Path, *, device: str = "cpu") -> Causal | SequenceToSequence:
    """Open a model for text generation: GPT-2, BERT with ``is_decoder``, Marian, or a pair of BERTs.

    Rules of its generation_config.json that would change the tokens and are not applied issue a UserWarning.

    Args:
        device: "cpu", "cuda", "cuda:1", "mps", or "auto". Texts are bit-identical in any batch only on the CPU.

    Raises:
        CheckpointError: no such model, or one that cannot be opened.
        UsageError: a bidirectional model, or a device that this machine lacks.
    """
    from bertkit.checkpoint.encoder_decoder import open_encoder_decoder
    from bertkit.generation.causal import Causal
    from bertkit.generation.sequence_to_sequence import SequenceToSequence

    folder = locate(name)
    if is_encoder_decoder(transformer_folder(folder)):
        checkpoint = open_encoder_decoder(folder)
        checkpoint.network.to(resolve_device(device))
        _warn_of_rules(checkpoint.generation, name)
        return SequenceToSequence(checkpoint)
    config = read_config(transformer_folder(folder)).transformer
    if not _continues_texts(config):
        reason = "has no head that predicts the next token" if config.is_decoder else "reads both sides of a token"
        raise UsageError(
            f"{name} {reason} and cannot continue a text: choose a left-to-right model (GPT-2, BERT with is_decoder) "
            "or an encoder-decoder"
        )
    model = load(folder, device=device, heads=["masked_lm"])
    _warn_of_rules(model.checkpoint.generation, name)
    return Causal(model)


def writes_text(name: str | Path) -> bool:
    """Whether `load_generator` opens a model, by its config.json.

    Raises:
        CheckpointError: no such model, or a config.json that cannot be read.
    """
    folder = transformer_folder(locate(name))
    if is_extraction(folder):
        return False
    return is_encoder_decoder(folder) or _continues_texts(read_config(folder).transformer)


def _continues_texts(config: EncoderConfig) -> bool:
    return config.is_decoder and architecture_of(config).causal_class is not None


def _warn_of_rules(rules: dict[str, Any], name: str | Path) -> None:
    if ignored := rules_not_applied(rules):
        warn(
            f"{name} generates without these rules of its generation_config.json, which are not supported: "
            f"{', '.join(ignored)}; texts may differ from those of transformers",
        )
