"""Comparison of bidirectional and unidirectional models trained on the same corpus.

Takes: text files, sizes, minutes for each model, seeds, labeled words and sentences.
Gives: a table and a page of the scores of each model; a stopped comparison resumes.
May import: errors, files, tokenizer, batch, transformer, heads, architectures, corpus, tasks, objectives, checkpoint,
training, model, evidence, pretraining, inspection, pages.
"""

from bertkit.comparison.features import Probes, read_senses
from bertkit.comparison.models import MODELS
from bertkit.comparison.predictors import Predictor
from bertkit.comparison.run import Comparison

__all__ = ["MODELS", "Comparison", "Predictor", "Probes", "read_senses"]
