"""Fine-tuning through the usual interface of each library: one file for each library, both with the same interface.

Each module here has a class ``Finetuner(threads)``; an object called with the name of a method calls that method:

    finetune   (model, train, test, settings) -> Facts: "seconds" of training alone, and "predictions" of the test
               examples: label names; numbers; the tags of every word; answers as text; indices of choices
    losses     (model, train, settings) -> the loss of every step over the examples in a given order

``model`` is a folder, examples are those of `bertkit.tasks.examples` and `bertkit.tasks.texts`.
"""

from dataclasses import dataclass
from typing import Any

EPS = 1e-6  # of AdamW, as published; what bertkit always has
NUM_WARM_UP_STEPS = 3  # before the clock starts: machine code is made or read, memory is taken

Facts = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Settings of both libraries. AdamW with bias correction; the learning rate rises and falls linearly; dropout is
    that of the model, 0.1."""

    kind: str  # of task, a name of bertkit.TASKS
    num_epochs: int
    learning_rate: float  # at its peak
    max_length: int  # tokens
    max_answer_length: int | None = None  # tokens, of question answering
    batch_size: int = 32
    warmup: float = 0.1  # share of the run
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    precision: str = "float32"
    seed: int = 0
