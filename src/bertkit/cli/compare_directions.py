"""bertkit compare-directions"""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli.output import Column, OutPath, emit, note
from bertkit.cli.task_options import given_options, settings_of
from bertkit.cli.training_command import check_one_process
from bertkit.comparison.settings import ComparisonSettings
from bertkit.errors import UsageError
from bertkit.training.recipe_files import read_recipe_file

SettingsOfComparison: Any = settings_of(ComparisonSettings, without=["seed"])
NO_SETTINGS = SettingsOfComparison()


def command(
    *,
    corpus: Annotated[list[Path], Parameter(consume_multiple=True)],
    out: OutPath,
    recipe: Path | None = None,
    settings: SettingsOfComparison = NO_SETTINGS,
    suite: Path | None = None,
    limit: int | None = None,
    cloze: str | None = None,
    word: str | None = None,
    column: Column = None,
    resume: bool = False,
) -> None:
    """Compare BERT with unidirectional and shallow bidirectional models, trained on the same corpus.

    Every model is trained on the same tokens with the same size, vocabulary and time, and then predicts one hidden
    token in the middle of each held-out sequence. Ctrl-C saves; --resume continues.

    Parameters
    ----------
    corpus
        Text files or folders with two or more documents: files, rows of a table, or parts of a txt file with a sentence
        on each line, separated by empty lines.
    out
        The folder of the comparison.
    recipe
        A TOML file of settings by name, those of the training loop in [training]; options given here take precedence.
    suite
        Grammatical minimal pairs, a file or a folder, as for bertkit evaluate grammar.
    limit
        Maximum number of pairs for each paradigm of --suite; by default all.
    cloze
        A text with one [MASK]: the probability of --word at the [MASK] is reported.
    word
        The word at the [MASK] of --cloze.
    resume
        Resume the comparison in the folder.
    """
    from bertkit.comparison import Comparison
    from bertkit.evidence.suites import read_suite
    from bertkit.training import stop_signals

    chosen = read_recipe_file(recipe, ComparisonSettings())[0].changed(**given_options(settings))
    check_one_process("a comparison runs")
    if (cloze is None) != (word is None):
        raise UsageError("--cloze and --word require each other: a text with [MASK], and the hidden word")
    if limit is not None and suite is None:
        raise UsageError("--limit is the number of pairs of --suite: give one")
    minimal_pairs = [] if suite is None else read_suite(suite, limit)
    comparison = Comparison(out, corpus, chosen, column, log_line=note)
    with stop_signals(note) as should_stop:
        given = None if cloze is None or word is None else (cloze, word)
        emit(comparison.start(minimal_pairs, given, resume=resume, should_stop=should_stop))
