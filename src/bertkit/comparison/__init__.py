"""Comparison of bidirectional and unidirectional models trained on the same corpus.

Takes: text files, sizes, minutes for each model, seeds, minimal pairs.
Gives: a table and a page of the scores of each model; a stopped comparison resumes.
May import: later, errors, files, tokenizer, batch, transformer, heads, architectures, corpus, tasks, objectives,
checkpoint, training, model, evidence, pretraining, pages.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.comparison.models import MODELS as MODELS
    from bertkit.comparison.predictors import Predictor as Predictor
    from bertkit.comparison.run import Comparison as Comparison
    from bertkit.comparison.settings import ComparisonSettings as ComparisonSettings

__getattr__, __dir__ = on_demand(__name__)
