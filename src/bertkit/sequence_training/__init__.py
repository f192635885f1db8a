"""Training of encoder-decoder models on pairs of texts, and of causal language models on texts.

Takes: pairs of source and target, or texts; a model to start from; settings.
Gives: a model folder with its metrics; a stopped run resumes.
May import: later, errors, files, locate, device, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint, training, model, generation, finetuning.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.sequence_training.batches import SequenceBatch, SequenceData
    from bertkit.sequence_training.examples import SequenceExample, read_pairs, read_texts
    from bertkit.sequence_training.loss import SequenceLoss
    from bertkit.sequence_training.metrics import sequence_metrics
    from bertkit.sequence_training.run import SequenceTraining
    from bertkit.sequence_training.settings import SequenceSettings
    from bertkit.sequence_training.tasks import SEQUENCE_TASKS

__getattr__, __dir__ = on_demand(__name__)

__all__ = [
    "SEQUENCE_TASKS",
    "SequenceBatch",
    "SequenceData",
    "SequenceExample",
    "SequenceLoss",
    "SequenceSettings",
    "SequenceTraining",
    "read_pairs",
    "read_texts",
    "sequence_metrics",
]
