"""Settings of a comparison."""

from dataclasses import dataclass
from typing import Annotated

from bertkit.errors import UsageError
from bertkit.tasks.field_types import Count, Range
from bertkit.tasks.settings import Settings
from bertkit.training import TrainingSettings

LOOP = TrainingSettings.of(batch_size=64, tokens_per_part=None, learning_rate=1e-3, warmup=0.1)
"""Default settings of the loop."""

MINUTES = 20.0
"""Default processor time of a model and seed."""

_Seeds = Annotated[
    tuple[int, ...],
    Range("different integers, at least one", lambda values: bool(values) and len(set(values)) == len(values)),
]
_Names = Annotated[tuple[str, ...], Range("different names", lambda values: len(set(values)) == len(values))]


@dataclass(frozen=True)
class ComparisonSettings(Settings):
    """Settings of a comparison of models that are trained on the same corpus.

    Parameters
    ----------
    training
        Settings of the training loop, of which two are special here.
    minutes
        Processor time for training each model with each seed, summed over cores, by default 20: 20 minutes take 10
        minutes on two idle cores. Other running programs do not reduce this time.
    num_steps
        Optimizer steps for each model, instead of minutes.
    size
        Size of the models: tiny, mini, small, medium, base or large.
    seeds
        Seeds of each model.
    models
        Any of bert, left-to-right, right-to-left, shallow-bidirectional, static; by default all.
    vocab_size
        Maximum number of entries in the vocabulary, which is trained on the corpus.
    max_seqlen
        Tokens of the longest sequence, [CLS] and [SEP] included.
    """

    training: TrainingSettings = LOOP
    size: str = "tiny"
    seeds: _Seeds = (0, 1, 2)
    models: _Names = ()
    vocab_size: Count = 8_000
    max_seqlen: Count = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training.seed:
            raise UsageError(f"seed={self.training.seed}: a comparison has several seeds: give seeds")

    @property
    def num_positions(self) -> int:
        """Positions of the models."""
        return max(self.max_seqlen, 128)

    def of_loop(self, seed: int) -> TrainingSettings:
        """The settings of the training of a model."""
        minutes = self.training.minutes if self.training.num_steps is not None else self.training.minutes or MINUTES
        return self.training.changed(seed=seed, minutes=minutes)
