"""bertkit cluster"""

from typing import Literal

from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, embed_texts
from bertkit.cli.output import Column, InputFile, ModelName, OutPath, emit, note


def command(
    input: InputFile,
    *,
    out: OutPath | None = None,
    method: Literal["communities", "duplicates", "kmeans", "agglomerative", "density"] = "communities",
    threshold: float | None = None,
    min_size: int | None = None,
    num_clusters: int | None = None,
    seed: int = 0,
    model: ModelName = EMBEDDING_MODEL,
    column: Column = None,
    compute: Compute = EXACT,
) -> None:
    """Clusters of similar texts, larger ones first: distinctive words and most typical texts of each.

    Parameters
    ----------
    input
        A txt file (a text on each line), jsonl, csv, tsv or parquet, or a folder of them; "-" is standard input.
    out
        A jsonl file with every text and its cluster number, or null.
    method
        communities: around a central text; duplicates: groups of near copies, for cleaning data; kmeans or
        agglomerative: a given number of clusters; density: HDBSCAN.
    threshold
        Minimum cosine with the central text, by default 0.75; for duplicates, 0.95.
    min_size
        Minimum number of texts in a cluster, by default 10 for communities and density, and 2 for duplicates.
    num_clusters
        Number of clusters, for kmeans and agglomerative.
    seed
        Seed of the initial centers of k-means.
    """
    from bertkit.clusters import ClusterOptions, find_clusters
    from bertkit.files.json_files import write_json_lines
    from bertkit.files.whole_files import check_writable

    options = ClusterOptions(method, threshold, min_size, num_clusters, seed)
    if out is not None:
        check_writable(out, input, endings=(".jsonl",))
    texts, vectors = embed_texts(input, column, model, compute)
    clusters = find_clusters(texts, vectors, options)
    if out is not None:
        number_of = {row: number for number, cluster in enumerate(clusters) for row in cluster.rows.tolist()}
        write_json_lines(out, ({"text": text, "cluster": number_of.get(row)} for row, text in enumerate(texts)))
    emit(
        {"cluster": number, "size": len(cluster.rows), "name": cluster.name, "typical": cluster.typical}
        for number, cluster in enumerate(clusters)
    )
    num_clustered = sum(len(cluster.rows) for cluster in clusters)
    note(f"{len(clusters)} clusters hold {num_clustered} of {len(texts)} texts")
