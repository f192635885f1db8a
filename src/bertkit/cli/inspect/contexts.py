"""bertkit inspect contexts"""

from pathlib import Path

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, show
from bertkit.cli.output import Column


def command(
    word: str,
    texts: Path,
    /,
    *,
    column: Column = None,
    senses: Path | None = None,
    top_k: int = 5,
    inspected: InspectedInside = INSIDE,
) -> None:
    """A word in its contexts: nearest occurrences, a map for each layer, static and contextual similarity.

    Parameters
    ----------
    word
        Matched as a whole word, in any case; the first occurrence in each text.
    texts
        txt, jsonl, csv, tsv or parquet: one text per row. At least three must contain the word.
    senses
        A file with the sense of each text, one per line.
    top_k
        Number of nearest occurrences to keep for each.
    """
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_contexts

    labels = None if senses is None else list(read_texts(senses))
    rows = list(read_texts(texts, column))
    show(inspected, lambda model: inspect_contexts(model, word, rows, senses=labels, top_k=top_k), texts, senses)
