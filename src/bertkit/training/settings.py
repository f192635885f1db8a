"""Settings of the training loop."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from bertkit.errors import UsageError
from bertkit.tasks.field_types import AboveZero, Count, NotNegative, Seed, Shares, check_field_types
from bertkit.training.schedules import learning_rate_factor

if TYPE_CHECKING:
    import torch

TOKENS_PER_PART_ON_CPU, TOKENS_PER_PART_ON_GPU = 2_048, 8_192
"""Default tokens per part. On the CPU every core computes a part at the same time. Fine-tuning MiniLM on 400 texts of
512 tokens (batches of 32, bfloat16, two cores of an AMD EPYC) takes 4.1 GB with parts of 8,192 tokens and 2.0 GB with
parts of 2,048, in the same processor time, 151 s. A batch of short texts is one part per core in both cases."""


@dataclass(frozen=True)
class OptimizationSettings:
    """Settings of the updates of weights: those of every recipe, by the same names, with defaults of each.

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
        Such as adamw; adamw-2018, without bias correction, as BERT was trained; muon, for the matrices of the layers.
    learning_rate
        Peak learning rate.
    matrix_learning_rate
        Peak learning rate of the matrices that muon updates (Jordan et al. 2024).
    weight_decay
        Weight decay of matrices and embeddings, decoupled.
    betas
        Decay rates of the averages of AdamW.
    eps
        Added to the divisor of AdamW.
    schedule
        Learning rate over the run, such as linear, linear-2018, cosine, trapezoid, inverse-square-root, constant.
    warmup
        Share of the run in which the learning rate rises linearly to its peak.
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
    """

    num_steps: Count | None = None
    minutes: AboveZero | None = None
    batch_size: Count = 256
    tokens_per_part: Count | None = None
    optimizer: str = "adamw"
    learning_rate: AboveZero | None = None
    matrix_learning_rate: AboveZero = 0.02
    weight_decay: NotNegative = 0.01
    betas: Shares = (0.9, 0.999)
    eps: AboveZero = 1e-6
    schedule: str = "linear"
    warmup: float = 0.01
    clip_norm: AboveZero | None = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: Seed = 0
    best_by: str | None = None
    patience: Count | None = None

    def __post_init__(self) -> None:
        check_field_types(self)
        if self.optimizer != OptimizationSettings.optimizer:  # the default, of the help of commands, needs no torch
            from bertkit.training.optimizers import optimizer_class

            optimizer_class(self.optimizer)
        learning_rate_factor(self.schedule, 0.0, self.warmup)

    def check_dev(self, dev: Sequence[Any], names: Sequence[str] = ("patience",)) -> None:
        """Raise a UsageError if one of these settings is set, which need dev examples, and there are none."""
        for name in names:
            if (value := getattr(self, name)) is not None and not dev:
                raise UsageError(f"{name}={value} requires dev examples, to measure improvement")

    def of_loop(self, **values: Any) -> "TrainingSettings":
        """The settings of a training loop: these, replaced and completed by ``values``."""
        return TrainingSettings(
            **{part.name: getattr(self, part.name) for part in fields(OptimizationSettings)} | values
        )


@dataclass(frozen=True)
class TrainingSettings(OptimizationSettings):
    """Settings of the training loop. The length of a run is either ``num_steps`` or ``minutes``."""

    tokens_per_part: Count | None = 8_192
    learning_rate: AboveZero = 1e-4  # Devlin et al. 2018, appendix A.2; their warm-up is 10,000 of 1,000,000 steps
    gradient_checkpointing: bool = False  # compute activations again in the backward pass instead of keeping them
    log_every: Count | None = None  # steps between lines of metrics; None: 10, or 1/100 of a run below 1,000 steps
    evaluate_every: Count | None = None  # steps between evaluations; None: up to twenty in a run, see `Trainer`
    save_every: Count | None = None  # steps between checkpoints; None: up to ten in a run
    keep_last: Count = 2  # number of checkpoints to keep, in addition to the best

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.num_steps is None) == (self.minutes is None):
            raise UsageError("expected either num_steps or minutes, the length of the run")

    def most_tokens(self, device: "torch.device") -> int:
        """Maximum number of tokens in a forward and backward pass on a device."""
        return self.tokens_per_part or (TOKENS_PER_PART_ON_CPU if device.type == "cpu" else TOKENS_PER_PART_ON_GPU)
