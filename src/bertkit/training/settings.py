"""Settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertkit.errors import UsageError
from bertkit.tasks.field_types import check_field_types
from bertkit.training.schedules import learning_rate_factor

if TYPE_CHECKING:
    import torch

OPTIMIZERS = ("adamw", "adamw-2018", "muon")

PRECISIONS = ("float32", "bfloat16")

TOKENS_PER_PART_ON_CPU, TOKENS_PER_PART_ON_GPU = 2_048, 8_192
"""Default tokens per part. On the CPU every core computes a part at the same time. Fine-tuning MiniLM on 400 texts of
512 tokens (batches of 32, bfloat16, two cores of an AMD EPYC) takes 4.1 GB with parts of 8,192 tokens and 2.0 GB with
parts of 2,048, in the same processor time, 151 s. A batch of short texts is one part per core in both cases."""


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training loop. The length of a run is either ``num_steps`` or ``minutes``."""

    num_steps: int | None = None  # optimizer steps
    minutes: float | None = None  # wall-clock time
    batch_size: int = 256  # sequences per optimizer step, over all ranks
    tokens_per_part: int | None = 8_192  # maximum number of tokens in a forward and backward pass; None: by device
    optimizer: str = "adamw"  # one of OPTIMIZERS
    learning_rate: float = 1e-4  # at its peak; BERT: 1e-4 (Devlin et al. 2018, appendix A.2)
    matrix_learning_rate: float = 0.02  # for muon's matrices (Jordan et al. 2024)
    weight_decay: float = 0.01  # for matrices and embeddings, decoupled
    betas: tuple[float, float] = (0.9, 0.999)  # decay rates of AdamW's averages
    eps: float = 1e-6  # added to AdamW's divisor
    schedule: str = "linear"  # one of SCHEDULES
    warmup: float = 0.01  # share of the run; BERT: 10,000 of 1,000,000 steps
    clip_norm: float | None = 1.0  # maximum norm of the gradients of all parameters
    precision: str = "float32"  # of matrix products: float32 or bfloat16; weights and sums are float32
    gradient_checkpointing: bool = False  # compute activations again in the backward pass instead of keeping them
    log_every: int | None = None  # steps between lines of metrics; None: 10, or 1/100 of a run below 1,000 steps
    evaluate_every: int | None = None  # steps between evaluations; None: up to twenty in a run, see `Trainer`
    save_every: int | None = None  # steps between checkpoints; None: up to ten in a run
    keep_last: int = 2  # number of checkpoints to keep, in addition to the best
    seed: int = 0  # seed of order, masks and dropout

    def __post_init__(self) -> None:
        check_field_types(self)
        if (self.num_steps is None) == (self.minutes is None):
            raise UsageError("expected either num_steps or minutes, the length of the run")
        for name in ("num_steps", "batch_size", "tokens_per_part", "log_every", "evaluate_every", "save_every",
                     "keep_last"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name}={value!r}: expected an integer of at least 1")
        for name in ("minutes", "learning_rate", "matrix_learning_rate", "clip_norm", "eps"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name}={value!r}: expected a number above 0")
        if self.weight_decay < 0:
            raise UsageError(f"weight_decay={self.weight_decay!r}: expected a number of at least 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas={self.betas!r}: expected two numbers from 0 to below 1")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed={self.seed!r}: expected an integer from 0 to below 2**63")
        if self.optimizer not in OPTIMIZERS:
            raise UsageError(f"optimizer={self.optimizer!r}: expected one of {', '.join(OPTIMIZERS)}")
        if self.precision not in PRECISIONS:
            raise UsageError(f"precision={self.precision!r}: expected {' or '.join(PRECISIONS)}")
        learning_rate_factor(self.schedule, 0.0, self.warmup)

    def most_tokens(self, device: torch.device) -> int:
        """Maximum number of tokens in a forward and backward pass on a device."""
        return self.tokens_per_part or (TOKENS_PER_PART_ON_CPU if device.type == "cpu" else TOKENS_PER_PART_ON_GPU)
