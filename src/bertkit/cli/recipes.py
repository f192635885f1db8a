"""Options shared by `bertkit pretrain` and `bertkit plan`: the corpus, the recipe and what it starts from."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from bertkit.cli.output import Column, Device, Files, Values
from bertkit.cli.task_options import given_options, settings_of
from bertkit.pretraining.recipe import Recipe, RecipeSettings, read_recipe, with_length

if TYPE_CHECKING:
    from bertkit.pretraining import Inputs

DEFAULT_RECIPE = "cpu-minutes"
SettingsOfRecipe: Any = settings_of(
    RecipeSettings, defaults=read_recipe(DEFAULT_RECIPE).values(), without=("objective", "config")
)
NO_SETTINGS = SettingsOfRecipe()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is trained, on what, and for how long.

    Parameters
    ----------
    corpus
        txt, jsonl, csv, tsv or parquet files, folders of them, or python-docs for the running Python's documentation.
    recipe
        bert-2018, bert-minutes, bert-modern, cpu-minutes, domain-adapt, electra-minutes, or a TOML file. The defaults
        of the settings below are those of cpu-minutes.
    objective
        The pre-training objective instead of the recipe's: masked-lm, replaced-tokens, ...; an unknown name lists all.
    vocab
        A vocab.txt; by default one is trained on the corpus.
    model
        The checkpoint to continue from, if the recipe does: a folder, a hub name or an installed model package.
    new_head
        Start the heads to train that the checkpoint lacks (masked LM, next sentence) from initial weights.
    held_out
        Files to evaluate on; without them a share of the documents of the corpus is held out.
    set
        Settings by section and name, also keys of the config.json, such as model.config.num_hidden_layers=6.
    settings
        Settings instead of the recipe's.
    """

    corpus: Files
    recipe: str = DEFAULT_RECIPE
    objective: str | None = None
    vocab: Path | None = None
    model: str | None = None
    new_head: bool = False
    held_out: Values = None
    column: Column = None
    settings: SettingsOfRecipe = NO_SETTINGS
    set: Values = None
    device: Device = "auto"

    def read(self) -> Recipe:
        """The recipe with the changes and the length of the options.

        Raises:
            UsageError: there is no such recipe or setting.
        """
        given = given_options(self.settings)
        length = {name: given.pop(name, None) for name in ("num_steps", "minutes")}
        changes = [*([] if self.objective is None else [f"objective.name={self.objective}"]), *(self.set or ())]
        recipe = read_recipe(self.recipe, changes).changed(**given)
        return with_length(recipe, **length, changes=[*changes, *(f"training.{name}" for name in given)])

    def inputs(self) -> "Inputs":
        """The files, the vocabulary and the model to start from."""
        from bertkit.pretraining import Inputs

        return Inputs(
            tuple(self.corpus), tuple(self.held_out or ()), self.vocab, self.model, self.new_head, self.column
        )
