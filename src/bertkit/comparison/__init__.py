"""What deep bidirectionality buys: models that see a word's left, its right, both or its neighbors, on one corpus.

Takes: text files, sizes, minutes for each model, seeds.
Gives: a table of what each model predicts of hidden words and of minimal pairs; a stopped comparison resumes.
May import: errors, files, tokenizer, batch, transformer, heads, architectures, corpus, tasks, objectives, checkpoint,
training, model, evidence, pretraining.
"""

from bertkit.comparison.predictors import Predictor
from bertkit.comparison.run import MODELS, Comparison

__all__ = ["MODELS", "Comparison", "Predictor"]
