"""bertkit compare"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.output import emit, note
from bertkit.errors import UsageError


def command(
    *,
    corpus: Annotated[list[Path], Parameter(consume_multiple=True)],
    out: Path,
    size: str = "tiny",
    minutes: float = 10.0,
    steps: int | None = None,
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    suite: Path | None = None,
    limit: int | None = None,
    cloze: str | None = None,
    word: str | None = None,
    column: str | None = None,
    resume: bool = False,
) -> None:
    """Compare BERT with one-directional and shallow models on a corpus.

    Every model is trained on the same tokens with the same size, vocabulary and time, and then predicts one hidden
    token in the middle of each held-out sequence. Ctrl-C saves; --resume continues.

    Parameters
    ----------
    corpus
        Text files or folders.
    out
        The folder of the comparison.
    size
        tiny, mini, small, ...
    minutes
        Training time per model and seed.
    steps
        Optimizer steps of each, instead of minutes.
    seeds
        Seeds; by default 0 1 2.
    models
        Any of bert, left-to-right, right-to-left, shallow-bidirectional, static; by default all.
    suite
        Grammatical minimal pairs, a file or a folder, as for bertkit evaluate.
    limit
        Number of pairs of each paradigm; by default all.
    cloze
        A text with one [MASK], whose hidden word's probability is reported.
    word
        That word.
    column
        The column of text of csv, jsonl and parquet files.
    resume
        Resume the comparison in the folder.
    """
    from bertkit.comparison import MODELS, Comparison
    from bertkit.evidence.suites import read_suite
    from bertkit.training import stop_signals

    if (cloze is None) != (word is None):
        raise UsageError("--cloze and --word require each other: a text with [MASK], and the hidden word")
    pairs = [] if suite is None else read_suite(suite, limit)
    comparison = Comparison(
        out, corpus, size, None if steps else minutes, steps, seeds or (0, 1, 2), models or tuple(MODELS),
        column=column, log_line=note,
    )  # fmt: skip
    with stop_signals(note) as should_stop:
        given = None if cloze is None or word is None else (cloze, word)
        emit(comparison.start(pairs, given, resume=resume, should_stop=should_stop))
