"""Pre-training recipes: complete, named configurations of a run, as TOML files."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Self

from bertkit.corpus.documents import TextLayoutSetting
from bertkit.errors import UsageError
from bertkit.objectives import OBJECTIVES, MaskedLM, Objective
from bertkit.tasks.field_types import Number, Range, Share
from bertkit.tasks.settings import Settings
from bertkit.training import TrainingSettings
from bertkit.training.recipe_files import read_settings, read_toml

RECIPES = tuple(sorted(path.stem for path in (Path(__file__).parent / "recipes").glob("*.toml")))

_ITEMS = {"samples": (str, "texts with [MASK]"), "expected": (dict, "tables of tokens and masked_lm_loss")}
"""The types of the items of a recipe's lists, and their names in errors."""

_VocabSize = Annotated[int, Range("an integer of at least 7, for 5 special tokens and 2 letters", lambda n: n >= 7)]


@dataclass(frozen=True)
class ModelSettings(Settings):
    """The model to train.

    Parameters
    ----------
    architecture
        A model_type: bert, modernbert, electra, ...; an unknown name lists all.
    size
        tiny, mini, small, medium or base; or fit: by the minutes of the run, for two cores.
    from_checkpoint
        Continue from a published checkpoint, named when the run starts.
    config
        Keys of config.json that differ from the size's.
    """

    architecture: str = "bert"
    size: str = "base"
    from_checkpoint: bool = False
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VocabularySettings(Settings):
    """The vocabulary to train if none is given.

    Parameters
    ----------
    vocab_size
        Entries of the vocabulary that is trained on the corpus; by default as BERT's uncased one.
    lowercase
        An uncased vocabulary.
    add_words
        Words of the corpus to add to a checkpoint's vocabulary.
    """

    vocab_size: _VocabSize = 30_522
    lowercase: bool = True
    add_words: Number = 0


@dataclass(frozen=True)
class DataSettings(Settings):
    """Text and lengths of sequences.

    Parameters
    ----------
    layout
        Of text: a sentence per line, a paragraph per line, or line breaks inside sentences; auto: guessed.
    max_seqlen
        Tokens of the longest sequence, [CLS] and [SEP] included.
    final_max_seqlen
        That of the last part of the run; by default the same throughout.
    final_share
        The share of the run of that last part; BERT: the last tenth at 512 tokens (Devlin et al. 2018, appendix A.2).
    held_out_share
        Share of the documents kept for evaluation without held-out files.
    drop_duplicates
        Remove repeated sentences.
    """

    layout: TextLayoutSetting = "auto"
    max_seqlen: int = 128
    final_max_seqlen: int | None = None
    final_share: Share = 0.1
    held_out_share: Share = 0.01
    drop_duplicates: bool = False

    def stage_at(self, progress: float) -> int:
        """Stage at a progress: 1 in the last part of a run that uses longer sequences there, else 0."""
        return int(self.final_max_seqlen is not None and progress >= 1 - self.final_share)

    def max_seqlens(self) -> list[int]:
        """The longest sequence of each stage."""
        return [self.max_seqlen, *([] if self.final_max_seqlen is None else [self.final_max_seqlen])]


@dataclass(frozen=True)
class RecipeSettings(Settings):
    """The settings of a run by section."""

    training: TrainingSettings = field(default_factory=TrainingSettings)
    model: ModelSettings = ModelSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    data: DataSettings = DataSettings()
    objective: Objective = field(default_factory=MaskedLM)

    def changed(self, **values: Any) -> Self:
        """As `Settings.changed`; raises a UsageError for settings of a new model, too, if this is for a checkpoint."""
        made = super().changed(**values)
        if made.model.from_checkpoint:
            _check_unused(values)
        return made


OF_NEW_MODELS = {
    section: {part.name for part in fields(kind)} - {"from_checkpoint", "add_words"}
    for section, kind in (("model", ModelSettings), ("vocabulary", VocabularySettings))
}
"""Settings without an effect on a checkpoint, by section."""


def _check_unused(names: Iterable[str], where: str = "") -> None:
    if unused := [name for name in names if any(name in section for section in OF_NEW_MODELS.values())]:
        raise UsageError(f"{where}the checkpoint to continue from has its own {', '.join(unused)}: omit what sets it")


@dataclass(frozen=True)
class Recipe(RecipeSettings):
    """The settings of a run of a length, without its corpus and folder."""

    samples: tuple[str, ...] = ()  # texts with [MASK] to predict at every evaluation
    expected: tuple[dict[str, Any], ...] = ()  # {"tokens", "masked_lm_loss"}: a curve measured with this recipe

    def __post_init__(self) -> None:
        super().__post_init__()
        self.training.check_length()
        least, what = (5, "[CLS] A [SEP] B [SEP]") if self.objective.takes_pairs else (3, "[CLS] A [SEP]")
        for name, length in zip(("max_seqlen", "final_max_seqlen"), self.data.max_seqlens(), strict=False):
            if length < least:
                raise UsageError(f"{name}={length}: expected at least {least}, for {what}")

    def facts(self) -> dict[str, Any]:
        """Every setting as a JSON value."""
        objective = {"name": self.objective.name, **self.objective.values()}
        return asdict(self) | {"training": self.training.values(), "objective": objective}


def read_recipe(recipe: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """A recipe by its name in RECIPES, or a TOML file, with changes such as ``"training.num_steps=500"``.

    Raises:
        UsageError: no such recipe, an unknown setting, or a value of the wrong type.
    """
    path = Path(__file__).parent / "recipes" / f"{recipe}.toml" if str(recipe) in RECIPES else Path(recipe)
    if not path.is_file():
        raise UsageError(f"recipe {str(recipe)!r}: expected one of {', '.join(RECIPES)}, or a TOML file")
    content = read_toml(path)
    kinds = (
        "objective.name=",
        "model.from_checkpoint=",
        *(f"training.{name}=" for name in TrainingSettings().choices()),
    )
    for change in sorted(changes, key=lambda change: not change.startswith(kinds)):
        _change(content, change)
    made = recipe_of(content, str(path))
    if made.model.from_checkpoint:
        _check_unused((name for section in OF_NEW_MODELS for name in content.get(section, {})), f"{recipe}: ")
    return made


def recipe_of(content: dict[str, Any], where: str) -> Recipe:
    """A recipe from its settings by section, as in `Recipe.facts` and TOML files.

    Raises:
        UsageError: as `read_recipe`.
    """
    content = dict(content)
    parts = {"model": ModelSettings, "vocabulary": VocabularySettings, "data": DataSettings}
    made: dict[str, Any] = {
        name: read_settings(kind(), content.pop(name, {}), f"{where}, [{name}]") for name, kind in parts.items()
    }
    made["objective"] = _objective(content.pop("objective", {}), f"{where}, [objective]")
    training = read_settings(TrainingSettings(), content.pop("training", {}), f"{where}, [training]")
    for name, (kind, what) in _ITEMS.items():
        value = content.pop(name, ())
        if not isinstance(value, list | tuple):
            raise UsageError(f"{where}: {name} = {value!r:.60}: expected a list")
        if wrong := [one for one in value if not isinstance(one, kind)]:
            raise UsageError(f"{where}: {name} has {wrong[0]!r:.60}: expected {what}")
        made[name] = tuple(value)
    if content:
        raise UsageError(
            f"{where} or --set: unknown section {', '.join(content)}; expected training, objective, samples, "
            f"{', '.join(parts)}"
        )
    try:
        return Recipe(training, **made)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def with_length(
    recipe: Recipe, *, num_steps: int | None = None, minutes: float | None = None, changes: Sequence[str] = ()
) -> Recipe:
    """The recipe with another run length; give at most one of the two.

    Intervals of evaluations and checkpoints that do not suit that length become a fixed number per run, unless
    ``changes``, with which the recipe was read, sets them.
    """
    if num_steps is not None and minutes is not None:
        raise UsageError("--minutes and --num-steps both set the length of the run: give one")
    if num_steps is None and minutes is None:
        return recipe
    before, unsuited = recipe.training, {}
    for name in ("evaluate_every", "save_every"):
        every = getattr(before, name)
        if every is None or any(change.strip().startswith(f"training.{name}") for change in changes):
            continue
        if every > num_steps if num_steps is not None else before.num_steps is not None:
            unsuited[name] = None
    return replace(recipe, training=replace(before, num_steps=num_steps, minutes=minutes, **unsuited))


def _objective(given: Any, where: str) -> Objective:
    if not isinstance(given, dict):
        return read_settings(MaskedLM(), given, where)
    settings = dict(given)
    return read_settings(_objective_class(settings.pop("name", MaskedLM.name))(), settings, where)


def _objective_class(name: Any) -> type[Objective]:
    if str(name) not in OBJECTIVES:
        raise UsageError(f"objective {name!r}: expected one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[str(name)]


def _change(content: dict[str, Any], change: str) -> None:
    name, equals, value = change.partition("=")
    section, dot, setting = name.strip().partition(".")
    if not equals or not dot or not setting:
        raise UsageError(f"setting {change!r}: expected section.name=value, such as training.num_steps=500")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # an unquoted word
    *outer, last = setting.split(".")
    table = content
    for part in (section, *outer):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UsageError(f"setting {change!r}: {part} is {table!r:.60}, which has no settings; expected a section")
    if section == "training" and last in ("num_steps", "minutes"):  # one of them
        table.pop("minutes" if last == "num_steps" else "num_steps", None)
    if (section, setting) == ("objective", "name"):  # keeps the settings that both objectives have
        names = {part.name for part in fields(_objective_class(parsed))}
        content[section] = table = {name: table[name] for name in table.keys() & names}
    if (section, setting, parsed) == ("model", "from_checkpoint", True):
        for name, unused in OF_NEW_MODELS.items():
            content[name] = {key: value for key, value in content.get(name, {}).items() if key not in unused}
        table = content[section]
    choice = TrainingSettings().choices().get(setting) if section == "training" else None
    if choice is not None and str(parsed) in choice.kinds():
        own = choice.kinds()[parsed]().values().keys()
        of_others = {name for kind in choice.kinds().values() for name in kind().values()} - own
        content[section] = table = {name: value for name, value in table.items() if name not in of_others}
    table[last] = parsed
