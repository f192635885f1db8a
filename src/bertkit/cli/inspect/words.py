"""bertkit inspect words"""

from pathlib import Path

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model


def command(
    word: str,
    texts: Path,
    /,
    *,
    column: str | None = None,
    senses: Path | None = None,
    top_k: int = 5,
    shown: Shown = NOWHERE,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """A word in context: nearest occurrences, a map for each layer, static and contextual similarity.

    Parameters
    ----------
    word
        Matched as a whole word, in any case; the first occurrence in each text.
    texts
        txt, jsonl, csv, tsv or parquet: one text per row. At least three must contain the word.
    column
        The column or key that holds the text.
    senses
        A file with the sense of each text, one per line.
    top_k
        Number of nearest occurrences to keep for each.
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_words

    labels = None if senses is None else list(read_texts(senses))
    rows = list(read_texts(texts, column))
    show(shown, lambda: inspect_words(open_model(model, compute), word, rows, senses=labels, top_k=top_k))
