"""bertkit words nearest | analogy | odd-one-out | direction | score"""

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import emit, note
from bertkit.errors import UsageError

if TYPE_CHECKING:
    from bertkit.words import StaticEncoder

command = App(name="words")


@command.command
def nearest(word: str, /, *, model: str = EMBEDDING_MODEL, top_k: int = 10) -> None:
    """Words with the largest cosine to a word.

    Parameters
    ----------
    word
        It is left out of the results.
    model
        A file of word2vec, GloVe or fastText (.vec), the folder of a spaCy pipeline, a StaticEmbedding or a model2vec
        model; or a model, whose input embeddings are taken.
    top_k
        How many words.
    """
    from bertkit.words.queries import nearest

    emit(one._asdict() for one in nearest(_open(model), word, top_k))


@command.command
def analogy(a: str, b: str, c: str, /, *, model: str = EMBEDDING_MODEL, top_k: int = 10) -> None:
    """Words nearest to A - B + C: "king man woman" asks what is to woman as king is to man.

    Parameters
    ----------
    a
        A word, which is left out of the results as the other two are.
    b
        What A is to C.
    c
        The word to which the answer belongs.
    model
        As of nearest.
    top_k
        How many words.
    """
    from bertkit.words.queries import analogy

    found = analogy(_open(model), a, b, c, top_k)
    note(f"{a} - {b} + {c}; the three words are left out of the answers")
    emit(one._asdict() for one in found)


@command.command
def odd_one_out(*words: str, model: str = EMBEDDING_MODEL) -> None:
    """Which word fits the others least: the lowest cosine to the mean of all.

    Parameters
    ----------
    words
        Three words or more.
    model
        As of nearest.
    """
    from bertkit.words.queries import odd_one_out

    emit(one._asdict() for one in odd_one_out(_open(model), words))


@command.command
def direction(*words: str, pair: list[str], model: str = EMBEDDING_MODEL) -> None:
    """Words against an axis of meaning that pairs of words span, such as gender or formality.

    The axis shows how the texts behind the vectors use words, not what words mean.

    Parameters
    ----------
    words
        Words to set against the axis: the cosine, and the percentage of all words that score lower.
    pair
        A pair as "he:she"; give at least two. The axis points to the second words.
    model
        As of nearest.
    """
    from bertkit.words.queries import direction

    pairs = [tuple(one.split(":")) for one in pair]
    if wrong := [one for one, ends in zip(pair, pairs, strict=True) if len(ends) != 2 or not all(ends)]:
        raise UsageError(f"--pair {wrong[0]!r}: expected two words with a colon between, as in he:she")
    found = direction(_open(model), [(ends[0], ends[1]) for ends in pairs], words)
    for one, agreement in zip(pair, found.agreement, strict=True):
        note(f"{one}: cosine {agreement:.3f} with the axis of the other pairs")
    note("an axis shows how the texts behind the vectors use words; pairs that do not agree span no axis")
    emit(one._asdict() for one in found.words)


@command.command
def score(*files: Path, model: str = EMBEDDING_MODEL) -> None:
    """Spearman's correlation with rated pairs, and the accuracy of analogies by section, each with its coverage.

    Parameters
    ----------
    files
        csv files with the columns word1, word2 and similarity (WordSim-353, SimLex-999, MEN), or word1, word2, word3
        and target, with type for sections (Google analogies, MSR).
    model
        As of nearest.
    """
    from bertkit.words.benchmarks import score_benchmark

    if not files:
        raise UsageError("score reads benchmarks: give at least one csv file")
    encoder = _open(model)
    emit(one._asdict() for file in files for one in score_benchmark(encoder, file))


def _open(model: str) -> "StaticEncoder":
    from bertkit.words.opening import open_words

    return open_words(model)
