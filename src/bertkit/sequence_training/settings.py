"""Settings of sequence training."""

import math
from dataclasses import dataclass

from bertkit.errors import UsageError
from bertkit.generation import GenerationSettings
from bertkit.tasks.field_types import check_field_types
from bertkit.training import TrainingSettings


@dataclass(frozen=True)
class SequenceSettings:
    """Settings for training a generative model; defaults mostly from Vaswani et al. 2017, section 5."""

    num_epochs: int = 10  # passes over the examples
    num_steps: int | None = None  # optimizer steps instead of epochs
    batch_size: int = 64  # examples of an optimizer step
    learning_rate: float = 1e-3  # at its peak, at the end of warm-up
    warmup: float = 0.1  # share of the run
    schedule: str = "inverse-square-root"  # one of SCHEDULES
    label_smoothing: float = 0.1  # share of the target distributed over the vocabulary
    dropout: float = 0.1  # of a new model
    vocab_size: int = 4_000  # entries of a new model's vocabulary, at most
    max_length: int = 512  # positions of a new model
    weight_decay: float = 0.0  # of matrices and embeddings
    precision: str = "float32"  # of the products in training
    num_beams: int = 1  # in the evaluation at the end
    seed: int = 0  # of initial weights, the order of examples and dropout

    def __post_init__(self) -> None:
        check_field_types(self)
        for name in ("num_epochs", "batch_size"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name}={value!r}: expected an integer of at least 1")
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"label_smoothing={self.label_smoothing!r}: expected a share from 0 to below 1")
        self.training(num_examples=1)
        GenerationSettings(num_beams=self.num_beams)

    def training(self, num_examples: int) -> TrainingSettings:
        """The settings of the training loop."""
        num_steps = self.num_steps
        if num_steps is None:
            num_steps = self.num_epochs * math.ceil(num_examples / self.batch_size)
        return TrainingSettings(
            num_steps=num_steps, batch_size=self.batch_size, learning_rate=self.learning_rate, warmup=self.warmup,
            schedule=self.schedule, weight_decay=self.weight_decay, betas=(0.9, 0.98), eps=1e-9, seed=self.seed,
            precision=self.precision, tokens_per_part=None,
        )  # fmt: skip
