"""bertkit inspect compare"""

from pathlib import Path

from bertkit.cli.inspect.shown import ENCODER, Inspected, write
from bertkit.cli.models import open_model
from bertkit.errors import UsageError


def command(texts: Path, /, *, limit: int = 100, inspected: Inspected = ENCODER) -> None:
    """Differences of two models: layers, attention, weights, texts that changed most.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one text per row.
    limit
        Maximum number of texts to read.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_difference

    if inspected.against is None:
        raise UsageError("compare needs a second model: give --against")
    names = (inspected.model, inspected.against)
    rows = list(islice(read_texts(texts), limit))

    write(inspected, lambda: inspect_difference(*(open_model(n, inspected.compute) for n in names), rows, names=names))
