"""Models of a run: initially new ones with the shape of the recipe, or a published checkpoint."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from bertkit.architectures import ARCHITECTURES, Network
from bertkit.checkpoint import check_savable, save_checkpoint
from bertkit.errors import MissingHeadError, UsageError
from bertkit.model import Model, load
from bertkit.objectives import Objective
from bertkit.pretraining.recipe import Recipe
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import EncoderConfig

_FITTING = ((7.0, "tiny"), (60.0, "mini"), (600.0, "small"), (float("inf"), "base"))
"""Sizes with the lowest loss after up to that number of minutes on two cores."""


@dataclass
class TrainedModels:
    """The model of a run, and the companions that its objective trains with it, in folders inside the model's."""

    objective: Objective
    model: Model
    companions: dict[str, Model]

    @classmethod
    def of(
        cls, recipe: Recipe, model: Model, folder: str | Path | None, *, may_be_new: bool = False
    ) -> "TrainedModels":
        """A model with its companions, from its folder.

        Args:
            folder: of the model; None: it is new, and so are its companions.
            may_be_new: give a model without companions new ones.

        Raises:
            MissingHeadError: it has no companions, unless ``may_be_new``.
        """
        companions = {}
        for number, (name, companion) in enumerate(recipe.objective.companions(model.config).items(), 1):
            if folder is not None and (Path(folder) / name / "config.json").is_file():
                companions[name] = load(Path(folder) / name, heads=companion.heads, device="cpu")
            elif folder is None or may_be_new:
                seed = recipe.training.seed + number
                companions[name] = Model.create(companion.config, model.tokenizer, companion.heads, seed=seed)
            else:
                raise MissingHeadError(
                    f"{folder} has no folder {name}, the model that objective {recipe.objective.name} trains with it: "
                    "start it from initial weights with new_head=True (on the command line: --new-head)"
                )
        return cls(recipe.objective, model, companions)

    @cached_property
    def network(self) -> nn.Module:
        """The network to train."""
        companions = {name: companion.network for name, companion in self.companions.items()}
        return self.objective.network(self.model.network, companions)

    def __iter__(self) -> Iterator[Model]:
        yield self.model
        yield from self.companions.values()

    @property
    def mask_filler(self) -> Model | None:
        """The first model with a masked LM head."""
        return next((model for model in self if "masked_lm" in model.network.heads), None)

    def extend_vocabulary(self, words: Sequence[str]) -> None:
        """As `Model.extend_vocabulary`, before the network is made."""
        for model in self:
            model.extend_vocabulary(words)

    def save(self, folder: Path, *, parameters: Mapping[str, Tensor], overwrite: bool = False) -> None:
        """Save all models; ``parameters`` of the network by name."""
        names = {id(parameter): name for name, parameter in self.network.named_parameters()}
        for model, path in zip(self, (folder, *(folder / name for name in self.companions)), strict=True):
            values = {name: parameters[names[id(value)]] for name, value in model.network.named_parameters()}
            save_checkpoint(model.checkpoint, path, parameters=values, overwrite=overwrite)


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


def new_network(recipe: Recipe, checkpoint: str | None) -> nn.Module:
    """The network of a run without weights, before its vocabulary is trained; raises the errors of `new_model`."""
    heads = _check_origin(recipe, checkpoint)
    config = _config(recipe, recipe.vocabulary.vocab_size)
    _check_encoder(recipe, config)
    with torch.device("meta"):
        companions = {name: Network(*one) for name, one in recipe.objective.companions(config).items()}
        return recipe.objective.network(Network(config, heads), companions)


def resolve_size(recipe: Recipe) -> str:
    """The named size of a new model, "fit" resolved by the minutes of the run."""
    if recipe.model.size != "fit":
        return recipe.model.size
    if recipe.training.minutes is None:
        raise UsageError(
            "size = 'fit' depends on the minutes of a run: give --minutes, or a size, such as --size small"
        )
    return _fitting(recipe.training.minutes)


def size_for(minutes: float) -> str:
    """The size with the lowest loss after some minutes on all cores of this machine.

    Measured on two cores (docs/guides/pretraining.md); minutes of more cores count proportionally.
    """
    return _fitting(minutes * (os.cpu_count() or 1) / 2)


def _fitting(minutes: float) -> str:
    return next(name for most, name in _FITTING if minutes <= most)


def _check_origin(recipe: Recipe, checkpoint: str | None) -> tuple[str, ...]:
    """The heads to train."""
    if recipe.model.from_checkpoint != (checkpoint is not None):
        raise UsageError(
            "this recipe continues from a checkpoint: name it with --model"
            if recipe.model.from_checkpoint
            else "--model requires a recipe that continues from a checkpoint, such as domain-adapt"
        )
    architecture, objective = recipe.model.architecture, recipe.objective
    if architecture not in ARCHITECTURES:
        raise UsageError(f"architecture={architecture!r}: expected one of {', '.join(ARCHITECTURES)}")
    for head in () if checkpoint is not None else objective.heads:
        if head not in ARCHITECTURES[architecture].heads:
            having = [name for name, other in ARCHITECTURES.items() if other.heads.keys() >= set(objective.heads)]
            raise UsageError(
                f"{architecture} has no {head} head, which objective {objective.name} trains: choose an "
                f"architecture of {', '.join(having)}, or another objective, such as masked-lm"
            )
    return objective.heads


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


def _open(name: str, heads: Sequence[str], new_head: bool, seed: int) -> Model:
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
        raise UsageError(
            "model.config.vocab_size is that of the vocabulary: set vocabulary.vocab_size, or give --vocab"
        )
    changes["vocab_size"] = vocab_size
    changes.setdefault("max_position_embeddings", max(512, *recipe.data.max_seqlens()))
    try:
        return ARCHITECTURES[recipe.model.architecture].config.of_size(size, **changes)
    except UsageError:
        raise
    except (TypeError, ValueError) as error:  # an unknown field, or one that this architecture fixes
        raise UsageError(f"[model.config]: {str(error).partition(') ')[2] or error}") from None
