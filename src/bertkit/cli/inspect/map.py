"""bertkit inspect map"""

from pathlib import Path
from typing import Literal

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model

Projection = Literal["pca", "tsne"]


def command(
    texts: Path,
    /,
    *,
    column: str | None = None,
    projection: Projection = "pca",
    clusters: int = 8,
    limit: int = 2_000,
    shown: Shown = NOWHERE,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """A map of texts by their embeddings, with search and clusters named by their words.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one text per row.
    column
        The column or key that holds the text.
    projection
        pca or tsne.
    clusters
        Number of clusters.
    limit
        Maximum number of texts to read.
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_map

    rows = list(islice(read_texts(texts, column), limit))
    show(
        shown,
        lambda: inspect_map(open_model(model, compute), rows, projection=projection, num_clusters=clusters),
    )
