"""Settings of sequence training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertkit.generation import GenerationSettings
from bertkit.tasks.field_types import AboveZero, Count, NotNegative, Share, Shares
from bertkit.training import OptimizationSettings, TrainingSettings

OF_NEW_MODELS: Mapping[str, Any] = {"dropout": 0.1, "vocab_size": 4_000, "max_length": 512}
"""Settings that only a new model has, with their defaults."""


@dataclass(frozen=True)
class SequenceSettings(OptimizationSettings):
    """Settings for training a generative model; defaults mostly from Vaswani et al. 2017, section 5.

    Parameters
    ----------
    num_epochs
        Passes over the examples, unless num_steps or minutes set the length of the run.
    label_smoothing
        Share of the target that is distributed over the vocabulary.
    dropout
        Dropout of a new model; by default 0.1.
    vocab_size
        Maximum number of entries in the vocabulary of a new model; by default 4,000.
    max_length
        Positions of a new model; by default 512.
    num_beams
        Number of beams in the evaluation at the end.
    """

    num_epochs: Count = 10
    batch_size: Count = 64
    learning_rate: AboveZero = 1e-3
    weight_decay: NotNegative = 0.0
    betas: Shares = (0.9, 0.98)
    eps: AboveZero = 1e-9
    schedule: str = "inverse-square-root"
    warmup: float = 0.1
    label_smoothing: Share = 0.1
    dropout: float | None = None
    vocab_size: int | None = None
    max_length: int | None = None
    num_beams: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.training(num_examples=1)
        GenerationSettings(num_beams=self.num_beams)

    def of_new_model(self) -> dict[str, Any]:
        """The settings of a new model by name."""
        given = {name: getattr(self, name) for name in OF_NEW_MODELS}
        return {name: default if given[name] is None else given[name] for name, default in OF_NEW_MODELS.items()}

    def training(self, num_examples: int) -> TrainingSettings:
        """The settings of the training loop."""
        num_steps = self.num_steps
        if num_steps is None and self.minutes is None:
            num_steps = self.num_epochs * math.ceil(num_examples / self.batch_size)
        return self.of_loop(num_steps=num_steps)
