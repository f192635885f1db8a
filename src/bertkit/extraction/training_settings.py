"""Settings of the training of extraction."""

from dataclasses import dataclass
from typing import Any, Literal

from bertkit.tasks.extraction import Extraction
from bertkit.tasks.field_types import AboveZero, Count, Share
from bertkit.tasks.settings import Settings
from bertkit.training import JobKind, TrainingSettings
from bertkit.training.settings import epochs_of_new_layers

LOOP = TrainingSettings.of(batch_size=8, tokens_per_part=None, learning_rate=None, warmup=0.1)
"""Default settings of the loop."""

NARROW = 512
"""Largest width of encoders with the higher learning rate; measured with 384 (benchmarks/NOTES.md)."""


@dataclass(frozen=True)
class ExtractionTrainingSettings(Settings):
    """Settings for training an extraction model.

    Parameters
    ----------
    training
        Settings of the training loop, of which one is special here.
    learning_rate
        Peak learning rate of the encoder; by default 3e-4 for encoders up to 512 wide, 5e-5 for wider ones.
    num_epochs
        Passes over the examples, unless num_steps or minutes set the length of the run; by default 3, or for few
        examples more: up to 20, for 500 steps.
    scorer
        token: scores of words as start, end and inside; span: scores of spans of up to max_width words, which take
        longer to learn.
    num_negatives
        Labels that its file uses and that do not occur in a text, drawn for each text and epoch.
    entity_weight
        Weight of entities in the loss, relative to what is none: higher finds more, at lower precision.
    max_width
        Words of the longest span of the span scorer.
    layer_rate_factor
        Learning rate of the layers after the encoder, as a multiple of that of the encoder.
    dropout
        Dropout of the layers after the encoder.
    """

    training: TrainingSettings = LOOP
    num_epochs: Count | None = None
    scorer: Literal["span", "token"] = "token"
    num_negatives: Count = 10
    entity_weight: AboveZero = 3.0
    max_width: Count = 12
    layer_rate_factor: AboveZero = 5.0
    dropout: Share = 0.1

    def of_loop(self, num_examples: int, hidden_size: int) -> TrainingSettings:
        """The settings of the training loop, for an encoder of a width."""
        loop, num_epochs = self.training, self.num_epochs
        if loop.learning_rate is None:
            loop = loop.changed(learning_rate=3e-4 if hidden_size <= NARROW else 5e-5)
        return loop.of_epochs(num_epochs or epochs_of_new_layers(-(-num_examples // loop.batch_size)), num_examples)


def _make(*, task: str, **fields: Any) -> Any:
    from bertkit.extraction.training import ExtractionTraining

    return ExtractionTraining(**fields)


JOB_KIND = JobKind(Extraction, ExtractionTrainingSettings(), _make)
"""The run of extraction."""
