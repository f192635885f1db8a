"""bertkit words nearest | analogy | odd-one-out | axis | score | train | train-pairs | extract | senses"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import Column, ModelName, OutPath, Values, emit, note
from bertkit.cli.task_options import given_options, settings_of
from bertkit.cli.training_command import check_one_process, result_row, run_training
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_folder_writable
from bertkit.training.recipe_files import read_recipe_file
from bertkit.words.settings import PairTraining, WordTraining

if TYPE_CHECKING:
    from bertkit.training import Ranks
    from bertkit.words import StaticEncoder
    from bertkit.words.job import VectorJob

Words = Annotated[
    str,
    Parameter(
        help="A file of word2vec, GloVe or fastText (.vec), the folder of a spaCy pipeline, a StaticEmbedding or a "
        "model2vec model; or a model, for its input embeddings."
    ),
]
NumWords = Annotated[int, Parameter(help="Number of words to print.")]
RecipeFile = Annotated[
    Path | None, Parameter(help="A TOML file of settings by name; options given here take precedence.")
]

command = App(name="words")
SettingsOfWords: Any = settings_of(WordTraining)
SettingsOfPairs: Any = settings_of(PairTraining)
DEFAULTS, PAIR_DEFAULTS = SettingsOfWords(), SettingsOfPairs()


@command.command
def nearest(word: str, /, *, model: Words = EMBEDDING_MODEL, top_k: NumWords = 10) -> None:
    """Nearest words to a word by cosine.

    Parameters
    ----------
    word
        The word; excluded from the results.
    """
    from bertkit.words.queries import nearest

    emit(one._asdict() for one in nearest(_open(model), word, top_k))


@command.command
def analogy(
    a: str, b: str, c: str, /, *, model: Words = EMBEDDING_MODEL, top_k: NumWords = 10, with_inputs: bool = False
) -> None:
    """Words nearest to A - B + C: for "king man woman", the word that is to woman as king is to man.

    Parameters
    ----------
    a
        A word.
    b
        The word that corresponds to A.
    c
        The word that corresponds to the answer.
    with_inputs
        Do not exclude A, B and C from the results; one of them is nearly always the nearest.
    """
    from bertkit.words.queries import analogy

    words = analogy(_open(model), a, b, c, top_k, with_inputs=with_inputs)
    note(f"{a} - {b} + {c}" + "; the three words are excluded" * (not with_inputs))
    emit(one._asdict() for one in words)


@command.command
def odd_one_out(*words: str, model: Words = EMBEDDING_MODEL) -> None:
    """The odd word out: the lowest cosine to the mean of all words.

    Parameters
    ----------
    words
        At least three words.
    """
    from bertkit.words.queries import odd_one_out

    emit(one._asdict() for one in odd_one_out(_open(model), words))


@command.command
def axis(*words: str, pair: list[str], model: Words = EMBEDDING_MODEL) -> None:
    """Score words on a semantic axis defined by pairs of words, such as gender or formality.

    Scores reflect how the training texts use words, not what words mean.

    Parameters
    ----------
    words
        Words to score: the cosine with the axis, and the percentage of all words that score lower.
    pair
        A pair as "he:she"; give at least two. The axis points to the second words.
    """
    from bertkit.words.queries import axis

    pairs = [tuple(one.split(":")) for one in pair]
    if wrong := [one for one, ends in zip(pair, pairs, strict=True) if len(ends) != 2 or not all(ends)]:
        raise UsageError(f"--pair {wrong[0]!r}: expected two words separated by a colon, such as he:she")
    result = axis(_open(model), [(ends[0], ends[1]) for ends in pairs], words)
    for one, agreement in zip(pair, result.agreement, strict=True):
        note(f"{one}: cosine {agreement:.3f} with the axis of the other pairs")
    note("scores reflect how the training texts use words; pairs with low agreement define no axis")
    emit(one._asdict() for one in result.words)


@command.command
def score(*files: Path, model: Words = EMBEDDING_MODEL) -> None:
    """Spearman's correlation with rated pairs, and the accuracy of analogies by section, each with its coverage.

    Parameters
    ----------
    files
        csv files with the columns word1, word2 and similarity (WordSim-353, SimLex-999, MEN), or word1, word2, word3
        and target, with type for sections (Google analogies, MSR).
    """
    from bertkit.words.benchmarks import score_benchmark

    if not files:
        raise UsageError("score requires at least one csv file with a benchmark")
    encoder = _open(model)
    emit(one._asdict() for file in files for one in score_benchmark(encoder, file))


@command.command
def train(
    *files: str,
    out: OutPath,
    settings: SettingsOfWords = DEFAULTS,
    recipe: RecipeFile = None,
    column: Column = None,
    resume: bool = False,
) -> None:
    """Train word vectors on files, on every core, and write them as a StaticEmbedding folder.

    Ctrl-C or SIGTERM finishes the parts at work, saves and exits.

    Parameters
    ----------
    files
        txt, jsonl, csv, tsv or parquet files, folders of them, or "python-docs": the documentation of this Python.
    out
        The folder to write.
    resume
        Resume the run in the folder, or start it if there is none; with one thread the result is bit-identical.
    """
    from bertkit.corpus.documents import Reading, read_sentences
    from bertkit.corpus.texts import files_skipped, find_files
    from bertkit.files import SkippedRow
    from bertkit.words.training import WordVectorTraining, read_corpus

    if not files:
        raise UsageError("train requires at least one file or folder of texts")
    chosen = read_recipe_file(recipe, WordTraining())[0].changed(**given_options(settings))
    check_one_process("words train runs")
    check_folder_writable(out)
    left_out, unreadable = [path for source in files for path in find_files(source)[1]], list[SkippedRow]()
    sentences = (one.text for one in read_sentences(list(files), Reading(column=column), unreadable))
    if left_out:
        note(files_skipped(left_out))
    try:
        corpus = read_corpus(sentences, chosen.min_count)
    finally:  # too few words may be the consequence
        if unreadable:
            note(f"rows and sentences that could not be read: {len(unreadable):,}, the first: {unreadable[0]}")
    if corpus.num_rare:
        num_words = len(corpus.words) + corpus.num_rare
        note(
            f"{corpus.num_rare:,} of {num_words:,} words get no vector, as they occur less than {chosen.min_count} "
            "times (--min-count)"
        )
    _train("words train", WordVectorTraining(out, chosen, log_line=note), corpus, resume)


@command.command
def train_pairs(
    *files: Path,
    out: OutPath,
    columns: Values = None,
    settings: SettingsOfPairs = PAIR_DEFAULTS,
    recipe: RecipeFile = None,
    vocabulary: str = EMBEDDING_MODEL,
    resume: bool = False,
) -> None:
    """Train a static encoder on pairs of texts that belong together, and write it as a StaticEmbedding folder.

    Ctrl-C or SIGTERM finishes the step, saves and exits.

    Parameters
    ----------
    files
        Files of rows with an anchor, a positive and optionally a negative, as for bertkit finetune similarity; without
        scores.
    out
        The folder to write.
    columns
        Columns by role, such as query=question positive=answer, where their names are not recognized.
    vocabulary
        The model whose tokens get vectors.
    resume
        Resume the run in the folder, or start it if there is none; the result is bit-identical.
    """
    from bertkit.cli.labeled_files import columns_of
    from bertkit.cli.models import open_tokenizer
    from bertkit.tasks import ExampleFile, Similarity
    from bertkit.words.contrastive import StaticTraining

    if not files:
        raise UsageError("train-pairs requires at least one file of text pairs")
    chosen = read_recipe_file(recipe, PairTraining())[0].changed(**given_options(settings))
    check_one_process("words train-pairs runs")
    check_folder_writable(out)
    roles = columns_of(columns)
    rows = [row.with_positive() for file in files for row in Similarity.read(ExampleFile(file, columns=roles))]
    run = StaticTraining(out, open_tokenizer(vocabulary, None), chosen, log_line=note)
    _train("words train-pairs", run, rows, resume, num_rows=len(rows))


@command.command
def extract(*, out: OutPath, model: ModelName = EMBEDDING_MODEL, dimensions: int | None = None) -> None:
    """Extract a static encoder from a model: its output for each token alone, with fewer dimensions.

    Parameters
    ----------
    out
        The folder to write, a StaticEmbedding.
    dimensions
        Number of components of a vector; by default 256, or all of a model that has fewer.
    """
    from bertkit.cli.models import EXACT, open_model
    from bertkit.words.extraction import extract

    if out.exists():
        raise UsageError(f"{out} exists: choose another folder")
    check_folder_writable(out)
    encoder = extract(opened := open_model(model, EXACT), dimensions)
    num_tokens, width = encoder.vectors.shape
    if dimensions is None and width == opened.config.hidden_size:
        note(f"{model} has {width} dimensions: all of them are kept")
    encoder.save(out)
    emit([{"out": str(out), "num_tokens": num_tokens, "dimensions": width}])


@command.command
def senses(
    word: str, texts: Path, /, *, num_senses: int = 2, column: Column = None, model: ModelName = EMBEDDING_MODEL
) -> None:
    """Group the occurrences of a word by their contextual vectors.

    Parameters
    ----------
    word
        Matched as a whole word, in any case; the first occurrence in each text.
    texts
        txt, jsonl, csv, tsv or parquet: one text per row.
    num_senses
        Number of groups.
    """
    from bertkit.cli.models import EXACT, open_model
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection.senses import find_senses

    rows = list(read_texts(texts, column))
    emit(one._asdict() for one in find_senses(open_model(model, EXACT), word, rows, num_senses).senses)


def _train(command: str, run: "VectorJob", data: Any, resume: bool, **facts: Any) -> None:
    def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
        run.ranks = ranks
        return result_row(run.out, run.start(data, resume=resume, should_stop=should_stop), **facts)

    run_training(command, run.out, "cpu", start)


def _open(model: str) -> "StaticEncoder":
    from bertkit.words.opening import open_words

    return open_words(model)
