"""Comparison of bidirectional and one-directional models trained on the same corpus.

Takes: text files, sizes, minutes for each model, seeds.
Gives: a table of cloze and minimal-pair scores of each model; a stopped comparison resumes.
May import: errors, files, tokenizer, batch, transformer, heads, architectures, corpus, tasks, objectives, checkpoint,
training, model, evidence, pretraining.
"""

from bertkit.comparison.predictors import Predictor
from bertkit.comparison.run import MODELS, Comparison

__all__ = ["MODELS", "Comparison", "Predictor"]
