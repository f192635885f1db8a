"""bertkit compare-directions"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.output import OutPath, emit, note
from bertkit.cli.training_command import check_one_process
from bertkit.errors import UsageError

_SENTENCES = 1_000  # of each CoNLL-U file, at most


def command(
    *,
    corpus: Annotated[list[Path], Parameter(consume_multiple=True)],
    out: OutPath,
    size: str = "tiny",
    minutes: float = 20.0,
    steps: int | None = None,
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    suite: Path | None = None,
    limit: int | None = None,
    cloze: str | None = None,
    word: str | None = None,
    tags: Annotated[tuple[Path, Path] | None, Parameter(consume_multiple=True)] = None,
    senses: Path | None = None,
    pairs: Path | None = None,
    column: str | None = None,
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
    size
        Size of the models: tiny, mini, small, medium, base or large.
    minutes
        Processor time for training each model with each seed, summed over cores: 20 minutes take 10 minutes on two
        idle cores. Other running programs do not reduce this time.
    steps
        Optimizer steps for each model, instead of minutes.
    seeds
        Seeds; by default 0 1 2.
    models
        Any of bert, left-to-right, right-to-left, shallow-bidirectional, static; by default all.
    suite
        Grammatical minimal pairs, a file or a folder, as for bertkit evaluate grammar.
    limit
        Maximum number of pairs for each paradigm of --suite; by default all.
    cloze
        A text with one [MASK]: the probability of --word at the [MASK] is reported.
    word
        The word at the [MASK] of --cloze.
    tags
        Two CoNLL-U files, to train and to test a classifier of parts of speech on frozen features.
    senses
        A folder of words with senses, in the layout of CoarseWSD-20.
    pairs
        A file with two sentences and a score on each row, as for bertkit evaluate similarity.
    column
        The column or key of the text in csv, tsv, jsonl and parquet files.
    resume
        Resume the comparison in the folder.
    """
    from bertkit.comparison import MODELS, Comparison, Probes, read_senses
    from bertkit.evidence.suites import read_suite
    from bertkit.inspection import read_trees
    from bertkit.tasks import ExampleFile, Similarity
    from bertkit.training import stop_signals

    check_one_process("a comparison runs")
    if (cloze is None) != (word is None):
        raise UsageError("--cloze and --word require each other: a text with [MASK], and the hidden word")
    if limit is not None and suite is None:
        raise UsageError("--limit is the number of pairs of --suite: give one")
    minimal_pairs = [] if suite is None else read_suite(suite, limit)
    scored = [] if pairs is None else list(Similarity.read(ExampleFile(pairs)))
    if any(one.score is None or len(one.texts) != 2 for one in scored):
        raise UsageError(f"{pairs}: expected two sentences and a score on each row")
    trees = [[tree.labeled("tags") for tree in read_trees(path, _SENTENCES)] for path in tags or ()]
    probes = Probes(
        (trees[0], trees[1]) if trees else None,
        () if senses is None else read_senses(senses),
        [(one.texts[0], one.texts[1], one.score or 0.0) for one in scored],
    )
    comparison = Comparison(
        out, corpus, size, None if steps else minutes, steps, seeds or (0, 1, 2), models or tuple(MODELS),
        column=column, log_line=note,
    )  # fmt: skip
    with stop_signals(note) as should_stop:
        given = None if cloze is None or word is None else (cloze, word)
        emit(comparison.start(minimal_pairs, given, probes, resume=resume, should_stop=should_stop))
