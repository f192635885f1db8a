"""Initial model of a run: a new one with the shape of the recipe, or a published checkpoint."""

import os

import torch

from bertkit.architectures import ARCHITECTURES, Network
from bertkit.checkpoint import check_savable
from bertkit.errors import MissingHeadError, UsageError
from bertkit.model import Model, load
from bertkit.pretraining.recipe import Recipe
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import EncoderConfig

_FITTING = ((7.0, "tiny"), (60.0, "mini"), (600.0, "small"), (float("inf"), "base"))
"""Sizes with the lowest loss after up to that number of minutes on two cores."""


def new_model(recipe: Recipe, checkpoint: str | None, tokenizer: Tokenizer | None, *, new_head: bool = False) -> Model:
    """The initial model of a recipe, with the heads to train.

    Args:
        checkpoint: the model to continue from, for recipes that require one; None for the others.
        tokenizer: of a new model.
        new_head: start the heads that the checkpoint lacks from initial weights.

    Raises:
        UsageError: a checkpoint that is missing or not expected, or an invalid shape.
        MissingHeadError: a checkpoint without a head that the recipe trains, unless ``new_head``.
        CheckpointError: a model that cannot be saved.
    """
    heads = _check_origin(recipe, checkpoint)
    if checkpoint is not None:
        model = _open(checkpoint, heads, new_head, recipe.training.seed)
        check_savable(model.checkpoint)
    else:
        assert tokenizer is not None
        config = _config(recipe, len(tokenizer.vocabulary))
        model = Model.create(config, tokenizer, heads, seed=recipe.training.seed)
    _check_encoder(recipe, model.config)
    return model


def new_network(recipe: Recipe, checkpoint: str | None) -> Network:
    """The network of `new_model` without weights, before its vocabulary is trained; raises the same errors."""
    heads = _check_origin(recipe, checkpoint)
    config = _config(recipe, recipe.vocabulary.size)
    _check_encoder(recipe, config)
    with torch.device("meta"):
        return Network(config, heads)


def resolve_size(recipe: Recipe) -> str:
    """The named size of a new model, "fit" resolved by the minutes of the run."""
    if recipe.model.size != "fit":
        return recipe.model.size
    if recipe.training.minutes is None:
        raise UsageError(
            "size = 'fit' depends on the minutes of a run: give --minutes, or a size, as in model.size=small"
        )
    return _fitting(recipe.training.minutes)


def size_for(minutes: float) -> str:
    """The size with the lowest loss after some minutes on all cores of this machine.

    Measured on two cores (docs/guides/pretraining.md); minutes of more cores count proportionally.
    """
    return _fitting(minutes * (os.cpu_count() or 1) / 2)


def _fitting(minutes: float) -> str:
    return next(name for most, name in _FITTING if minutes <= most)


def _check_origin(recipe: Recipe, checkpoint: str | None) -> list[str]:
    """The heads to train."""
    if recipe.model.from_checkpoint != (checkpoint is not None):
        raise UsageError(
            "this recipe continues from a checkpoint: name it with --model"
            if recipe.model.from_checkpoint
            else "--model requires a recipe that continues from a checkpoint, such as domain-adapt"
        )
    if recipe.data.sentence_pairs == "none":
        return ["masked_lm"]
    architecture = recipe.model.architecture
    if checkpoint is None and "next_sentence" not in ARCHITECTURES[architecture].heads:
        raise UsageError(
            f"{architecture} has no next_sentence head, which data.sentence_pairs={recipe.data.sentence_pairs!r} "
            "trains: set model.architecture=bert, or data.sentence_pairs=none"
        )
    return ["masked_lm", "next_sentence"]


def _check_encoder(recipe: Recipe, config: EncoderConfig) -> None:
    """Check that the model predicts tokens from both sides, and has a position for each token of a sequence."""
    if config.is_decoder:
        raise UsageError(
            "this model reads from left to right, and a masked token is predicted from both sides: choose another "
            "model.architecture, such as bert, without is_decoder"
        )
    longest = max(recipe.data.max_seqlens())
    if longest > config.max_position_embeddings:
        raise UsageError(f"max_seqlen={longest}: the model has {config.max_position_embeddings} positions")


def _open(name: str, heads: list[str], new_head: bool, seed: int) -> Model:
    try:
        return load(name, heads=heads, device="cpu")
    except MissingHeadError as error:
        if not new_head:
            raise MissingHeadError(f"{error} (on the command line: --new-head)") from None
    stored = load(name, device="cpu").network
    new = [head for head in heads if head not in stored.heads]
    reads_pooler = any(stored.architecture.reads_pooler(head, stored.config) for head in heads)
    if reads_pooler and stored.encoder.pooler is None:
        new.append("pooler")
    return load(name, heads=heads, new=new, device="cpu", seed=seed)


def _config(recipe: Recipe, vocab_size: int) -> EncoderConfig:
    size, changes = resolve_size(recipe), dict(recipe.model.config)
    if "vocab_size" in changes:
        raise UsageError("model.config.vocab_size is the size of the vocabulary: set vocabulary.size, or give --vocab")
    changes["vocab_size"] = vocab_size
    changes.setdefault("max_position_embeddings", max(512, *recipe.data.max_seqlens()))
    try:
        return ARCHITECTURES[recipe.model.architecture].config.of_size(size, **changes)
    except UsageError:
        raise
    except (TypeError, ValueError) as error:  # an unknown field, or one that this architecture fixes
        raise UsageError(f"[model.config]: {str(error).partition(') ')[2] or error}") from None
