"""Fine-tuning of published models for tasks.

Takes: a published model, the name of a task, training and dev examples, settings.
Gives: a model directory with its task, labels, metrics and card; a stopped run resumes bit-identically.
May import: later, advice, errors, files, locate, device, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint, training, inference, model, evidence, reports.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.finetuning.baselines import comparison as comparison
    from bertkit.finetuning.baselines import simple_baselines as simple_baselines
    from bertkit.finetuning.run import Finetuning as Finetuning
    from bertkit.finetuning.settings import PAPER as PAPER
    from bertkit.finetuning.settings import FinetuningSettings as FinetuningSettings
    from bertkit.finetuning.settings import default_settings as default_settings
    from bertkit.finetuning.sweeps import SWEEPS as SWEEPS
    from bertkit.finetuning.sweeps import sweep as sweep
    from bertkit.finetuning.within import start_run as start_run
    from bertkit.training.job import Outcome as Outcome

__getattr__, __dir__ = on_demand(__name__)
