"""Settings of the training loop."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bertkit.errors import UsageError
from bertkit.tasks.field_types import AboveZero, Count, Seed
from bertkit.tasks.settings import Settings
from bertkit.training.optimizers import AdamWSettings, OptimizerSettings
from bertkit.training.schedules import Linear, Schedule

if TYPE_CHECKING:
    import torch

TOKENS_PER_PART_ON_CPU, TOKENS_PER_PART_ON_GPU = 2_048, 8_192
"""Default tokens per part. On the CPU every core computes a part at the same time. Fine-tuning MiniLM on 400 texts of
512 tokens (batches of 32, bfloat16, two cores of an AMD EPYC) takes 4.1 GB with parts of 8,192 tokens and 2.0 GB with
parts of 2,048, in the same processor time, 151 s. A batch of short texts is one part per core in both cases."""

FEWEST_STEPS = 500
"""Minimum number of optimizer steps with randomly initialized layers, within MOST_EPOCHS."""
MOST_EPOCHS = 20
"""Maximum number of epochs for small data sets: Mosbach et al. 2021, section 5."""

_OF_RECORDS = ("log_every", "save_every", "keep_last", "gradient_checkpointing")
"""Settings of records and memory, without effect on the weights."""

_ADAMW, _LINEAR = AdamWSettings(), Linear()


def epochs_of_new_layers(num_batches: int) -> int:
    """Passes over the examples that train randomly initialized layers: 3, or for few examples more.

    >>> [epochs_of_new_layers(num_batches) for num_batches in (10**6, 47, 7)]
    [3, 11, 20]
    """
    return max(3, min(-(-FEWEST_STEPS // max(num_batches, 1)), MOST_EPOCHS))


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """Settings of the training loop: a part of those of every recipe.

    Parameters
    ----------
    num_steps
        Optimizer steps.
    minutes
        Wall-clock time of training.
    batch_size
        Sequences or examples per optimizer step, over all ranks.
    tokens_per_part
        Maximum number of tokens in one forward and backward pass; by default 2,048 on the CPU, 8,192 on a GPU.
    optimizer
        adamw; adamw-2018, without bias correction, as BERT was trained; muon, for the matrices of the layers.
    learning_rate
        Peak learning rate.
    schedule
        Learning rate over the run.
    clip_norm
        Maximum norm of the gradients of all parameters.
    precision
        Precision of matrix products in training; weights and sums are float32.
    seed
        Seed of new weights, order, masks and dropout.
    best_by
        Metric that selects the best weights; by default that of the task.
    patience
        Stop after this number of evaluations without improvement; by default never.
    gradient_checkpointing
        Compute activations again in the backward pass instead of keeping them.
    log_every
        Steps between lines of metrics; by default 10, or 1/100 of a run below 1,000 steps.
    evaluate_every
        Steps between evaluations; by default one per epoch in fine-tuning, else up to twenty in a run.
    save_every
        Steps between checkpoints; by default one per epoch in fine-tuning, else up to ten in a run.
    keep_last
        Number of checkpoints to keep, in addition to the best.
    """

    num_steps: Count | None = None
    minutes: AboveZero | None = None
    batch_size: Count = 256
    tokens_per_part: Count | None = 8_192
    optimizer: OptimizerSettings = _ADAMW
    learning_rate: AboveZero | None = 1e-4  # Devlin et al. 2018, appendix A.2; their warm-up is 10,000 of 1,000,000
    schedule: Schedule = _LINEAR
    clip_norm: AboveZero | None = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: Seed = 0
    best_by: str | None = None
    patience: Count | None = None
    gradient_checkpointing: bool = False
    log_every: Count | None = None
    evaluate_every: Count | None = None
    save_every: Count | None = None
    keep_last: Count = 2

    def of_epochs(self, num_epochs: int, num_examples: int) -> "TrainingSettings":
        """These settings with the steps of so many epochs, unless steps or minutes set the length already."""
        if self.num_steps is not None or self.minutes is not None:
            return self
        return self.changed(num_steps=num_epochs * math.ceil(num_examples / self.batch_size))

    def check_length(self) -> None:
        """Raise a UsageError unless exactly one of ``num_steps`` and ``minutes`` is set."""
        if (self.num_steps is None) == (self.minutes is None):
            raise UsageError("expected either num_steps or minutes, the length of the run")

    def check_dev(self, dev: Sequence[Any], names: Sequence[str] = ("patience",)) -> None:
        """Raise a UsageError if one of these settings is set, which need dev examples, and there are none."""
        for name in names:
            if (value := getattr(self, name)) is not None and not dev:
                raise UsageError(f"{name}={value} requires dev examples, to measure improvement")

    @staticmethod
    def facts(settings: Settings) -> dict[str, Any]:
        """The values of a recipe that determine its result: without those that may differ when a run is resumed."""
        return {name: value for name, value in settings.values().items() if name not in _OF_RECORDS}

    def most_tokens(self, device: "torch.device") -> int:
        """Maximum number of tokens in a forward and backward pass on a device."""
        return self.tokens_per_part or (TOKENS_PER_PART_ON_CPU if device.type == "cpu" else TOKENS_PER_PART_ON_GPU)
