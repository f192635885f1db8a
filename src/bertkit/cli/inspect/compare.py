"""bertkit inspect compare"""

from pathlib import Path

from bertkit.cli.inspect.shown import DEFAULT, Shown
from bertkit.cli.models import open_model


def command(other: str, texts: Path, /, *, limit: int = 100, shown: Shown = DEFAULT) -> None:
    """Compare two models: layers, attention, weights, texts that changed most.

    Parameters
    ----------
    other
        The second model.
    texts
        txt, jsonl, csv, tsv or parquet: one text per row.
    limit
        Maximum number of texts to read.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_difference

    rows = list(islice(read_texts(texts), limit))
    names = shown.model, other
    shown.show(lambda first: inspect_difference(first, open_model(other, shown.compute), rows, names=names))
