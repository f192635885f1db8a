"""Labeled examples to a model for a task.

Takes: a published model, the name of a task, training and dev examples, settings.
Gives: a model directory with its task, labels, metrics and card; a stopped run resumes with the same bits.
May import: errors, files, locate, device, tokenizer, batch, tasks, checkpoint, training, inference, model, evidence,
reports.
"""

from bertkit.finetuning.baselines import baselines_of, comparison, higher_is_better
from bertkit.finetuning.run import Finetuning, Outcome
from bertkit.finetuning.settings import PAPER, FinetuningSettings, default_settings
from bertkit.finetuning.sweep import SWEEPS, sweep

__all__ = [
    "PAPER",
    "SWEEPS",
    "Finetuning",
    "FinetuningSettings",
    "Outcome",
    "baselines_of",
    "comparison",
    "default_settings",
    "higher_is_better",
    "sweep",
]
