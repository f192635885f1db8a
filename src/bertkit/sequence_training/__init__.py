"""Training of encoder-decoder models on pairs of texts, and of causal language models on texts.

Takes: pairs of source and target, or texts; a model to start from; settings.
Gives: a model folder with its metrics; a stopped run resumes.
May import: later, errors, files, locate, device, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint, training, model, generation, finetuning.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.sequence_training.batches import SequenceBatch as SequenceBatch
    from bertkit.sequence_training.batches import SequenceData as SequenceData
    from bertkit.sequence_training.loss import SequenceLoss as SequenceLoss
    from bertkit.sequence_training.metrics import sequence_metrics as sequence_metrics
    from bertkit.sequence_training.run import SequenceTraining as SequenceTraining
    from bertkit.sequence_training.settings import SequenceSettings as SequenceSettings

__getattr__, __dir__ = on_demand(__name__)
