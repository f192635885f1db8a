"""Settings of the training of extraction."""

import math
from dataclasses import dataclass
from typing import Literal

from bertkit.tasks.field_types import AboveZero, Count, NotNegative, Share
from bertkit.training import OptimizationSettings, TrainingSettings


@dataclass(frozen=True)
class ExtractionTrainingSettings(OptimizationSettings):
    """Settings for training an extraction model.

    Parameters
    ----------
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

    num_epochs: Count = 3
    batch_size: Count = 16
    learning_rate: AboveZero = 5e-5
    warmup: float = 0.1
    scorer: Literal["span", "token"] = "span"
    num_negatives: Count = 10
    max_width: Count = 12
    layer_rate_factor: AboveZero = 10.0
    dropout: Share = 0.1
    weight_decay: NotNegative = 0.01

    def training(self, num_examples: int) -> TrainingSettings:
        """The settings of the training loop."""
        num_steps = self.num_steps
        if num_steps is None and self.minutes is None:
            num_steps = self.num_epochs * math.ceil(num_examples / self.batch_size)
        return self.of_loop(num_steps=num_steps)
