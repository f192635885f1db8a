"""Logits to loss, prediction and metric: what a network is trained for, one file a task.

Takes: a network's output for a batch, and the batch's labels.
Gives: the loss, and sums from which the metrics come.
May import: errors, batch, transformer, heads.
"""

from bertkit.tasks.pretraining import PretrainingTask
from bertkit.tasks.task import Loss, Task

__all__ = ["Loss", "PretrainingTask", "Task"]
