"""Settings of the training of extraction."""

from dataclasses import dataclass
from typing import Literal

from bertkit.tasks.field_types import AboveZero, Count, Share
from bertkit.tasks.settings import Settings
from bertkit.training import TrainingSettings

LOOP = TrainingSettings.of(batch_size=16, tokens_per_part=None, learning_rate=5e-5, warmup=0.1)
"""Default settings of the loop."""


@dataclass(frozen=True)
class ExtractionTrainingSettings(Settings):
    """Settings for training an extraction model.

    Parameters
    ----------
    training
        Settings of the training loop.
    num_epochs
        Passes over the examples, unless num_steps or minutes set the length of the run.
    scorer
        span: scores of spans of up to max_width words; token: scores of words as start, end and inside.
    num_negatives
        Labels of the data that do not occur in a text, drawn for each text and epoch.
    max_width
        Words of the longest span of the span scorer.
    layer_rate_factor
        Learning rate of the layers after the encoder, as a multiple of that of the encoder.
    dropout
        Dropout of the layers after the encoder.
    """

    training: TrainingSettings = LOOP
    num_epochs: Count = 3
    scorer: Literal["span", "token"] = "span"
    num_negatives: Count = 10
    max_width: Count = 12
    layer_rate_factor: AboveZero = 10.0
    dropout: Share = 0.1

    def of_loop(self, num_examples: int) -> TrainingSettings:
        """The settings of the training loop."""
        return self.training.of_epochs(self.num_epochs, num_examples)
