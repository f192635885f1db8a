"""Initial models of generative tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertkit.errors import UsageError
from bertkit.locate import locate, transformer_folder
from bertkit.sequence_training.settings import SequenceSettings
from bertkit.tasks import GenerativeTask, SequenceExample
from bertkit.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertkit.architectures.encoder_decoder import EncoderDecoderConfig
    from bertkit.generation import Generator

NEW_MODELS = {"new-tiny": (2, 128, 4), "new": (3, 256, 4), "new-base": (6, 512, 8)}
"""Sizes of a new model: layers of each stack, width, heads. The last is the base model of Vaswani et al. 2017."""


def initial_model(
    task: type[GenerativeTask], model: str, train: Sequence[SequenceExample], settings: SequenceSettings
) -> Generator:
    """The model to train: a new one, a generative model, or for pairs also one whose stacks start from a BERT.

    Args:
        model: a name of NEW_MODELS, or a model to start from.
        train: texts for the tokenizer of a new model.

    Raises:
        UsageError: a model of the other kind, or a new causal language model.
    """
    return _encoder_decoder(model, train, settings) if task.has_sources else _causal(model)


def _encoder_decoder(model: str, train: Sequence[SequenceExample], settings: SequenceSettings) -> Generator:
    from bertkit.checkpoint.config_file import is_encoder_decoder
    from bertkit.checkpoint.encoder_decoder import new_encoder_decoder, open_encoder_decoder, warm_started
    from bertkit.generation import SequenceToSequence
    from bertkit.tokenizer.byte_level import train_byte_level

    seed = settings.training.seed
    if model not in NEW_MODELS:
        folder = locate(model)
        is_pair = is_encoder_decoder(transformer_folder(folder))
        return SequenceToSequence(open_encoder_decoder(folder) if is_pair else warm_started(folder, seed))
    chosen = settings.of_new_model()
    texts = [text for example in train for text in (example.source, example.target) if text is not None]
    tokenizer = train_byte_level(texts, chosen["vocab_size"])
    return SequenceToSequence(new_encoder_decoder(_new_config(model, tokenizer, chosen), tokenizer, seed))


def _new_config(model: str, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> EncoderDecoderConfig:
    from bertkit.architectures.encoder_decoder import EncoderDecoderConfig
    from bertkit.transformer import TransformerConfig

    layers, width, heads = NEW_MODELS[model]
    encoder, decoder = (
        TransformerConfig(
            vocab_size=len(tokenizer.vocabulary), hidden_size=width, num_hidden_layers=layers,
            num_attention_heads=heads, intermediate_size=4 * width, hidden_dropout_prob=settings["dropout"],
            max_position_embeddings=settings["max_length"], is_decoder=is_decoder,
        )
        for is_decoder in (False, True)
    )  # fmt: skip
    ids = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
    return EncoderDecoderConfig(encoder, decoder, *ids, shares_embeddings=True)


def _causal(model: str) -> Generator:
    from bertkit.generation import Causal, load_generator

    if model in NEW_MODELS:
        raise UsageError(
            "causal-language-model needs an existing left-to-right model, such as --model gpt2; "
            f"{model} is a new encoder-decoder"
        )
    generator = load_generator(model)
    if not isinstance(generator, Causal):
        raise UsageError(f"{model} is an encoder-decoder model: choose a causal language model")
    generator.model.mark_trained()
    return generator
