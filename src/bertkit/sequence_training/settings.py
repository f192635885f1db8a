"""Settings of sequence training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertkit.tasks import GenerativeTask
from bertkit.tasks.field_types import Count, Share
from bertkit.tasks.settings import Settings
from bertkit.training import JobKind, TrainingSettings

OF_NEW_MODELS: Mapping[str, Any] = {"dropout": 0.1, "vocab_size": 4_000, "max_length": 512}
"""Settings that only a new model has, with their defaults."""


LOOP = TrainingSettings.of(
    batch_size=64, tokens_per_part=None, learning_rate=1e-3, weight_decay=0.0, betas=(0.9, 0.98), eps=1e-9,
    schedule="inverse-square-root", warmup=0.1,
)  # fmt: skip
"""Default settings of the loop."""


@dataclass(frozen=True)
class SequenceSettings(Settings):
    """Settings for training a generative model; defaults mostly from Vaswani et al. 2017, section 5.

    Parameters
    ----------
    training
        Settings of the training loop.
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

    training: TrainingSettings = LOOP
    num_epochs: Count = 10
    label_smoothing: Share = 0.1
    dropout: float | None = None
    vocab_size: int | None = None
    max_length: int | None = None
    num_beams: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.of_loop(num_examples=1).check_length()

    def of_new_model(self) -> dict[str, Any]:
        """The settings of a new model by name."""
        given = {name: getattr(self, name) for name in OF_NEW_MODELS}
        return {name: default if given[name] is None else given[name] for name, default in OF_NEW_MODELS.items()}

    def of_loop(self, num_examples: int) -> TrainingSettings:
        """The settings of the training loop."""
        return self.training.of_epochs(self.num_epochs, num_examples)


def _make(**fields: Any) -> Any:
    from bertkit.sequence_training.run import SequenceTraining

    return SequenceTraining(**fields)


JOB_KIND = JobKind(GenerativeTask, SequenceSettings(), _make)
"""The run of generative tasks."""
