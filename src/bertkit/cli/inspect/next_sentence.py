"""bertkit inspect next-sentence"""

from pathlib import Path

from bertkit.cli.inspect.shown import PRETRAINED, InspectedPretrained, show
from bertkit.cli.output import Column
from bertkit.errors import UsageError

_MOST_ON_A_PAGE = 500
"""Number of sentences whose pairs fill a page of 5 MB, the largest; long ones fill it sooner."""


def command(texts: Path, /, *, column: Column = None, inspected: InspectedPretrained = PRETRAINED) -> None:
    """Probabilities that one sentence of a file follows another.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one sentence per row.
    """
    import numpy as np

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import NextSentenceView, inspect_next_sentence

    rows = list(read_texts(texts, column))
    if inspected.out is not None and len(rows) > 1:  # a page that is too large is refused before pairs are computed
        if len(rows) > _MOST_ON_A_PAGE:
            raise UsageError(
                f"{texts} has {len(rows):,} sentences: a page shows the pairs of {_MOST_ON_A_PAGE} at most"
            )
        NextSentenceView(rows, np.zeros((len(rows), len(rows)))).page()
    show(inspected, lambda model: inspect_next_sentence(model, rows), texts)
