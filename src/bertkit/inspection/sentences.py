"""Sentences: a map of their vectors with clusters named by their words, and next-sentence probabilities.

Shape letters: n texts, C clusters, E embedding_dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bertkit.clusters import ClusterOptions, find_clusters
from bertkit.errors import OverLengthError, UsageError, checked_count, required
from bertkit.inspection.contextual import normalized
from bertkit.inspection.scatter import Cloud, projections, scatter_parts, scatter_program
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Markup, Program, heat_map, paragraph, section, table
from bertkit.tokenizer.tokenizer import listed_texts

Projection = Literal["pca", "tsne"]


@dataclass(frozen=True, eq=False)
class MapView(View):
    """A map of texts by their embeddings."""

    title: ClassVar[str] = "Map of texts"
    smaller: ClassVar[str] = "give fewer or shorter texts"
    texts: list[str]  # n
    projection: Projection
    points: np.ndarray  # (n, 2)
    explained: float | None  # share of variance shown by the map; None for t-SNE
    clusters: np.ndarray  # (n,) int64
    names: list[str]  # C, distinctive words of each cluster

    def parts(self) -> list[Markup]:
        sizes = np.bincount(self.clusters, minlength=len(self.names))
        rows = [[name, int(size)] for name, size in zip(self.names, sizes, strict=True)]
        way = (
            "Two principal components of the vectors." if self.projection == "pca"
            else "t-SNE of the vectors: near points are similar; far distances and group sizes have no meaning."
        )  # fmt: skip
        return [
            paragraph(f"{len(self.texts):,} texts in {len(self.names)} clusters."),
            *scatter_parts("Map", way),
            section("Clusters", table(["words", "texts"], rows)),
        ]

    def program(self) -> Program:
        groups = [self.names[cluster] for cluster in self.clusters]
        return scatter_program([Cloud("All texts", self.points, self.explained)], self.texts, groups)


@dataclass(frozen=True, eq=False)
class NextSentenceView(View):
    """Probabilities that one sentence follows another, by next sentence prediction."""

    title: ClassVar[str] = "Next sentence"
    smaller: ClassVar[str] = "give fewer sentences"
    sentences: list[str]  # n
    probabilities: np.ndarray  # (n, n): row = text A, column = text B

    def numbers(self) -> dict[str, Any]:
        swapped = self.probabilities.T
        return vars(self) | {"swapped_difference": self.probabilities - swapped}

    def rows(self) -> list[dict[str, Any]]:
        """Each sentence with the one after it."""
        pairs = zip(self.sentences, self.sentences[1:], self.probabilities.diagonal(1).tolist(), strict=False)
        return [{"text_a": first, "text_b": second, "probability": value} for first, second, value in pairs]

    def parts(self) -> list[Markup]:
        labels = [f"{number} {sentence[:40]}" for number, sentence in enumerate(self.sentences, 1)]
        following = [float(self.probabilities[n, n + 1]) for n in range(len(labels) - 1)]
        others = self.probabilities[~np.eye(len(labels), k=1, dtype=np.bool_)]
        return [
            paragraph(
                f"Probability that the sentence of a column follows that of a row. Sentences that do follow have "
                f"{np.mean(following):.3f} on average, all other pairs {others.mean():.3f}."
            ),
            heat_map("Sentence by sentence", self.probabilities, labels, labels, row_name="first",
                     column_name="second", full=1.0),
        ]  # fmt: skip


def inspect_map(
    model: Model, texts: Sequence[str], *, projection: Projection = "pca", num_clusters: int = 8, seed: int = 0
) -> MapView:
    """Map of texts by their embeddings.

    Args:
        projection: "pca" or "tsne".
        num_clusters: number of clusters of k-means, at most the number of texts.
        seed: seed of k-means and t-SNE.

    Raises:
        DependencyError: scikit-learn is not installed.
        UsageError: fewer than three texts, a str instead of texts, or an unknown projection.
    """
    check_model(model)
    texts = listed_texts(texts)
    if len(texts) < 3:
        raise UsageError(f"{len(texts)} texts: expected at least 3 for a map")
    if projection not in ("pca", "tsne"):
        raise UsageError(f"projection={projection!r}: expected 'pca' or 'tsne'")
    num_clusters = checked_count("num_clusters", num_clusters)
    embedded = model.embed(texts, on_long="window")
    vectors = embedded.astype(np.float64)
    points, shares = projections(vectors[None])
    explained: float | None = float(shares[0, :2].sum())
    planar = points[0]
    if projection == "tsne":
        planar, explained = _tsne(vectors, seed), None
    options = ClusterOptions("kmeans", num_clusters=min(num_clusters, len(texts)), seed=seed)
    groups = find_clusters(texts, normalized(embedded), options)
    clusters, names = np.zeros(len(texts), np.int64), []
    for number, group in enumerate(groups):
        clusters[group.rows] = number
        names.append(group.name if group.name not in names else f"{group.name} ({number + 1})")
    return MapView(texts, projection, planar, explained, clusters, names)


def inspect_next_sentence(model: Model, sentences: Sequence[str]) -> NextSentenceView:
    """The next-sentence probability of each pair of sentences.

    Raises:
        MissingHeadError: no trained next sentence head.
        OverLengthError: a pair has more tokens than the model accepts.
        UsageError: fewer than two sentences.
    """
    check_model(model)
    sentences = listed_texts(sentences)
    if len(sentences) < 2:
        raise UsageError(f"{len(sentences)} sentences: expected at least 2")
    pairs = [(first, second) for first in sentences for second in sentences]
    firsts, seconds = zip(*pairs, strict=True)
    try:
        probabilities = model.next_sentence_probability(list(firsts), list(seconds))
    except OverLengthError as error:
        first, second = divmod(error.index, len(sentences))
        problem = (
            f"sentences {first + 1} and {second + 1} together have more tokens than the model accepts: shorten them"
        )
        raise OverLengthError(problem, error.index, problem) from None
    return NextSentenceView(list(sentences), np.asarray(probabilities).reshape(len(sentences), -1))


def _tsne(vectors: np.ndarray, seed: int) -> np.ndarray:
    if (vectors == vectors[0]).all():  # scikit-learn would divide by zero, and crash
        return np.zeros((len(vectors), 2))
    manifold = required("sklearn.manifold", "t-SNE needs scikit-learn", "sklearn")
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = manifold.TSNE(perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(tsne.fit_transform(vectors.astype(np.float32)), np.float64)
