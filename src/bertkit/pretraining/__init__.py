"""Pre-training from raw text to a model: recipes and their runs.

Takes: files of text, a recipe.
Gives: a run folder with checkpoints, metrics and the model; a stopped run resumes with the same bits.
May import: advice, errors, files, device, tokenizer, batch, transformer, heads, architectures, vocabulary_extension,
corpus, tasks, objectives, checkpoint, training, model, reports.
"""

from bertkit.pretraining.feed import PretrainingFeed, held_out_batches, make_feed
from bertkit.pretraining.plan import Plan, plan
from bertkit.pretraining.recipe import (
    RECIPES,
    DataSettings,
    ModelSettings,
    Recipe,
    VocabularySettings,
    read_recipe,
    with_length,
)
from bertkit.pretraining.run import Inputs, Pretraining

__all__ = [
    "RECIPES",
    "DataSettings",
    "Inputs",
    "ModelSettings",
    "Plan",
    "Pretraining",
    "PretrainingFeed",
    "Recipe",
    "VocabularySettings",
    "held_out_batches",
    "make_feed",
    "plan",
    "read_recipe",
    "with_length",
]
