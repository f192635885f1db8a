"""Fine-tuning of published models for tasks.

Takes: a published model, the name of a task, training and dev examples, settings.
Gives: a model directory with its task, labels, metrics and card; a stopped run resumes bit-identically.
May import: later, errors, files, locate, device, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint, training, inference, model, evidence, reports.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.finetuning.baselines import comparison, higher_is_better, simple_baselines
    from bertkit.finetuning.outcome import Outcome
    from bertkit.finetuning.run import Finetuning
    from bertkit.finetuning.settings import PAPER, FinetuningSettings, default_settings
    from bertkit.finetuning.sweeps import SWEEPS, sweep
    from bertkit.finetuning.within import start_run

__getattr__, __dir__ = on_demand(__name__)

__all__ = [
    "PAPER",
    "SWEEPS",
    "Finetuning",
    "FinetuningSettings",
    "Outcome",
    "comparison",
    "default_settings",
    "higher_is_better",
    "simple_baselines",
    "start_run",
    "sweep",
]
