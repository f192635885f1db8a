"""Pre-training from raw text to a model: recipes and their runs.

Takes: files of text, a recipe.
Gives: a run folder with checkpoints, metrics and the model; a stopped run resumes with the same bits.
May import: later, advice, errors, files, device, tokenizer, batch, transformer, heads, architectures,
vocabulary_extension, corpus, tasks, objectives, checkpoint, training, model, reports.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.pretraining.feed import PretrainingFeed as PretrainingFeed
    from bertkit.pretraining.feed import held_out_batches as held_out_batches
    from bertkit.pretraining.feed import make_feed as make_feed
    from bertkit.pretraining.plan import Plan as Plan
    from bertkit.pretraining.plan import plan as plan
    from bertkit.pretraining.recipe import RECIPES as RECIPES
    from bertkit.pretraining.recipe import DataSettings as DataSettings
    from bertkit.pretraining.recipe import ModelSettings as ModelSettings
    from bertkit.pretraining.recipe import Recipe as Recipe
    from bertkit.pretraining.recipe import VocabularySettings as VocabularySettings
    from bertkit.pretraining.recipe import read_recipe as read_recipe
    from bertkit.pretraining.recipe import with_length as with_length
    from bertkit.pretraining.run import Inputs as Inputs
    from bertkit.pretraining.run import Pretraining as Pretraining

__getattr__, __dir__ = on_demand(__name__)
