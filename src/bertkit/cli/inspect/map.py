"""bertkit inspect map"""

from pathlib import Path
from typing import Literal

from bertkit.cli.inspect.shown import ENCODER, Inspected, check_limit, show
from bertkit.cli.output import Column

Projection = Literal["pca", "tsne"]


def command(
    texts: Path,
    /,
    *,
    column: Column = None,
    projection: Projection = "pca",
    clusters: int = 8,
    limit: int = 2_000,
    inspected: Inspected = ENCODER,
) -> None:
    """A map of texts by their embeddings, with search and clusters named by their words.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one text per row.
    projection
        pca or tsne.
    clusters
        Number of clusters.
    limit
        Maximum number of texts to read.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_map

    check_limit(limit)
    rows = list(islice(read_texts(texts, column), limit))
    show(
        inspected,
        lambda model: inspect_map(model, rows, projection=projection, num_clusters=clusters),
        texts,
        has_rows=False,
    )
