"""bertkit inspect compare"""

from pathlib import Path

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model


def command(
    other: str,
    texts: Path,
    /,
    *,
    limit: int = 100,
    shown: Shown = NOWHERE,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """Compare two models: layers, attention, weights, texts that changed most.

    Parameters
    ----------
    other
        The second model.
    texts
        txt, jsonl, csv, tsv or parquet: one text per row.
    limit
        Maximum number of texts to read.
    model
        The first model: a folder, a hub name, or the import name of an installed model package.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_difference

    rows = list(islice(read_texts(texts), limit))
    first, second = (open_model(name, compute) for name in (model, other))
    show(shown, lambda: inspect_difference(first, second, rows, names=(model, other)))
