"""bertkit inspect map"""

from typing import Literal

from bertkit.cli.inspect.shown import ENCODER, Inspected, Limit, Texts, show, some_texts
from bertkit.cli.output import Column

Projection = Literal["pca", "tsne"]


def command(
    texts: Texts,
    /,
    *,
    column: Column = None,
    projection: Projection = "pca",
    clusters: int = 8,
    limit: Limit = 2_000,
    inspected: Inspected = ENCODER,
) -> None:
    """A map of texts by their embeddings, with search and clusters named by their words.

    Parameters
    ----------
    projection
        pca or tsne.
    clusters
        Number of clusters.
    """
    from bertkit.inspection import inspect_map

    rows, how = some_texts(texts, column, limit), {"projection": projection, "num_clusters": clusters}
    show(inspected, lambda model: inspect_map(model, rows, **how), texts, has_rows=False)
