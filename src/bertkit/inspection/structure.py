"""Structural probe: a linear map under which squared distances between words are distances in the syntax tree.

Hewitt & Manning 2019. Shape letters: n words of a sentence, S layers, D hidden_size, K rank of the map.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.errors import UsageError, check_type, checked_count
from bertkit.inspection.contextual import Tree, word_vectors
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Line, Markup, Reference, element, figure, line_chart, paragraph, scrolling, section
from bertkit.tasks.metrics import spearman

_LEARNING_RATE, _BATCH_SIZE, _INITIAL = 1e-3, 20, 0.05
_LAYERS_AT_A_TIME = 4  # whose vectors are in memory
_MOST_WORDS = 60  # longer sentences are not used for training
_LETTER_WIDTH, _ARC_HEIGHT = 9, 22  # pixels
Edge = tuple[int, int]


@dataclass(frozen=True)
class TreeScore:
    """Agreement of predicted distances with gold trees."""

    uuas: float  # share of gold edges in the minimum spanning tree of predicted distances; without punctuation
    spearman: float  # rank correlation of predicted and true distances: mean over the words of sentences of one length,
    # then over lengths from 5 to 50; with punctuation, as in the authors' code


@dataclass(frozen=True, eq=False)
class StructureView(View):
    """Scores of the structural probe by layer, and trees of the best layer."""

    title: ClassVar[str] = "Structural probe"
    rank: int
    num_train: int
    num_test: int
    scores: list[TreeScore]  # S, for the embeddings and every layer
    linear: TreeScore  # baseline that connects each word to the next
    examples: list[tuple[Tree, list[Edge]]]  # test sentences with the predicted edges of the best layer

    @property
    def best_layer(self) -> int:
        return _best(self.scores)

    def numbers(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "num_train": self.num_train,
            "num_test": self.num_test,
            "layers": self.scores,
            "linear": self.linear,
            "best_layer": self.best_layer,
            "examples": [
                {"words": tree.words, "heads": tree.heads, "predicted": edges} for tree, edges in self.examples
            ],
        }

    def rows(self) -> list[dict[str, Any]]:
        scores = [{"layer": layer} | vars(score) for layer, score in enumerate(self.scores)]
        return [*scores, {"layer": "each word to the next"} | vars(self.linear)]

    def parts(self) -> list[Markup]:
        layers = np.arange(len(self.scores), dtype=np.float64)
        curves = [
            Line("UUAS", layers, np.array([score.uuas for score in self.scores])),
            Line("distance Spearman", layers, np.array([score.spearman for score in self.scores]), color=2),
        ]
        best = self.scores[self.best_layer]
        return [
            paragraph(
                f"A map of rank {self.rank}, learned from {self.num_train:,} sentences, turns squared distances "
                f"between word vectors into distances in the syntax tree. On {self.num_test:,} other sentences layer "
                f"{self.best_layer} finds {100 * best.uuas:.1f} % of the edges; connecting each word to the next finds "
                f"{100 * self.linear.uuas:.1f} %."
            ),
            line_chart("By layer", curves, x_name="layer", x_kind="integer", y_name="score",
                       references=[Reference("UUAS of next words", self.linear.uuas)]),
            section(
                "Trees",
                paragraph("Above the words the edges of the treebank, below the predicted ones: blue where they agree, "
                          "orange and dashed where they do not."),
                [arcs(tree, edges) for tree, edges in self.examples],
            ),
        ]  # fmt: skip


def inspect_structure(
    model: Model,
    train: Sequence[Tree],
    test: Sequence[Tree],
    *,
    layers: Sequence[int] | None = None,
    rank: int = 64,
    epochs: int = 5,
    seed: int = 0,
) -> StructureView:
    """The structural probe of each layer.

    Args:
        layers: layers to score, 0 for the embeddings; None: all. Other layers score NaN.
        rank: rank of the map; a larger one than the hidden size counts as that.

    Raises:
        OverLengthError: a sentence has more tokens than the model accepts.
        UsageError: no sentences of 2 to 60 words, a rank or a number of epochs below 1, or layers that the model lacks.
    """
    check_model(model)
    rank, epochs = checked_count("rank", rank), checked_count("epochs", epochs)
    train, test = list(train), list(test)
    for tree in train + test:
        check_type("a sentence", tree, Tree)
    last = model.config.num_hidden_layers
    if layers is not None and not (layers and all(0 <= layer <= last for layer in layers)):
        raise UsageError(f"layers={list(layers)}: expected one or more of 0 to {last}, the layers of this model")
    train = [tree for tree in train if 2 <= len(tree.words) <= _MOST_WORDS]
    test = [tree for tree in test if len(tree.words) >= 2]
    if not train or not test:
        raise UsageError("no sentences: expected some of 2 to 60 words for training, and others for testing")
    rank = min(rank, model.config.hidden_size)
    every = range(last + 1)
    gold = [tree.distances() for tree in test]
    scores, best_distances = [TreeScore(float("nan"), float("nan")) for _ in every], None
    states = _by_layer_and_sentence(model, (train, test), every if layers is None else layers)
    for layer, (own, other) in states:
        weight = structural_probe(own, [tree.distances() for tree in train], rank, epochs, seed)
        predicted = [_distances(torch.from_numpy(states) @ weight.T).numpy() for states in other]
        scores[layer] = tree_scores(test, gold, predicted)
        if layer == _best(scores):
            best_distances = predicted
    assert best_distances is not None
    chain = [np.abs(np.subtract.outer(np.arange(len(tree.words)), np.arange(len(tree.words)))) for tree in test]
    short = [n for n in range(len(test)) if 5 <= len(test[n].words) <= 16]
    longest = sorted(short, key=lambda n: -len(test[n].words))[:4]
    return StructureView(
        rank=rank,
        num_train=len(train),
        num_test=len(test),
        scores=scores,
        linear=tree_scores(test, gold, [matrix.astype(np.float64) for matrix in chain]),
        examples=[(test[n], spanning_tree(best_distances[n], _kept(test[n]))) for n in longest],
    )


def _best(scores: Sequence[TreeScore]) -> int:
    """The layer with the highest UUAS, of equal ones the first."""
    return int(np.nanargmax([score.uuas for score in scores]))


def structural_probe(
    states: Sequence[np.ndarray], distances: Sequence[np.ndarray], rank: int, epochs: int, seed: int
) -> Tensor:
    """The (K, D) map that minimizes the mean over sentences of the absolute difference between tree distance and
    squared distance, divided by the squared length (Hewitt & Manning 2019, equation 3)."""
    generator = torch.Generator().manual_seed(seed)
    weight = (torch.rand(rank, states[0].shape[1], generator=generator) * 2 - 1) * _INITIAL
    weight.requires_grad = True
    optimizer = torch.optim.Adam([weight], lr=_LEARNING_RATE)
    vectors = [torch.from_numpy(each) for each in states]
    gold = [torch.from_numpy(matrix.astype(np.float32)) for matrix in distances]
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * (1 - epoch / epochs)
        for batch in torch.randperm(len(vectors), generator=generator).split(_BATCH_SIZE):
            lengths = torch.tensor([len(vectors[index]) for index in batch.tolist()])
            rows = nn.utils.rnn.pad_sequence([vectors[index] for index in batch.tolist()], batch_first=True)
            true = torch.zeros(len(batch), rows.shape[1], rows.shape[1])
            for matrix, index, length in zip(true, batch.tolist(), lengths.tolist(), strict=True):
                matrix[:length, :length] = gold[index]
            real = torch.arange(rows.shape[1]) < lengths[:, None]
            errors = (true - _distances(rows @ weight.T)).abs() * (real[:, :, None] & real[:, None, :])
            loss = (errors.sum((1, 2)) / lengths.square()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return weight.detach()


def tree_scores(trees: Sequence[Tree], gold: Sequence[np.ndarray], predicted: Sequence[np.ndarray]) -> TreeScore:
    """UUAS over all edges between words other than punctuation, and Spearman correlation over all words."""
    num_right = num_edges = 0
    by_length: dict[int, list[float]] = {}
    for tree, true, guess in zip(trees, gold, predicted, strict=True):
        kept = _kept(tree)
        edges = gold_edges(tree)
        num_edges += len(edges)
        num_right += len(edges & set(spanning_tree(guess, kept)))
        if 5 <= len(tree.words) <= 50:
            rows = [spearman(true[word], guess[word]) for word in range(len(tree.words))]
            by_length.setdefault(len(tree.words), []).extend(row for row in rows if row == row)
    means = [float(np.mean(rows)) for rows in by_length.values() if rows]
    return TreeScore(num_right / max(num_edges, 1), float(np.mean(means)) if means else float("nan"))


def gold_edges(tree: Tree) -> set[Edge]:
    """Edges between words other than punctuation, the smaller index first."""
    kept = set(_kept(tree))
    pairs = [(min(word, head), max(word, head)) for word, head in enumerate(tree.heads) if head >= 0]
    return {pair for pair in pairs if kept.issuperset(pair)}


def spanning_tree(distances: np.ndarray, kept: Sequence[int]) -> list[Edge]:
    """The edges of the minimum spanning tree of some words, the smaller index first (Prim 1957)."""
    if len(kept) < 2:
        return []
    own = distances[np.ix_(kept, kept)]
    nearest, cost = np.zeros(len(kept), np.int64), own[0].copy()
    left, edges = np.arange(len(kept)) > 0, []
    while left.any():
        new = int(np.flatnonzero(left)[cost[left].argmin()])
        left[new] = False
        edges.append((kept[min(new, nearest[new])], kept[max(new, nearest[new])]))
        closer = own[new] < cost
        nearest[closer], cost[closer] = new, own[new][closer]
    return sorted(edges)


def arcs(tree: Tree, predicted: Sequence[Edge]) -> Markup:
    """A figure of a sentence with gold edges above and predicted ones below."""
    gold = gold_edges(tree)
    levels = {edge: _level(edge, {*gold, *predicted}) for edge in {*gold, *predicted}}
    above = max((levels[edge] for edge in gold), default=0) * _ARC_HEIGHT + 8
    below = max((levels[edge] for edge in predicted), default=0) * _ARC_HEIGHT + 8
    word_width = max(48, _LETTER_WIDTH * max(map(len, tree.words)) + 12)
    width, middle = word_width * len(tree.words), above + 26
    paths = []
    for edges, way, base in ((gold, -1, above), (set(predicted), 1, middle)):
        for first, last in sorted(edges):
            left, right = (word_width * (index + 0.5) + shift for index, shift in ((first, 5), (last, -5)))
            top = base + way * levels[first, last] * _ARC_HEIGHT
            is_shared = (first, last) in gold and (way < 0 or (first, last) in predicted)
            kind = "line color-1" if is_shared else "line dashed color-2"
            paths.append(element("path", d=f"M{left:.0f} {base}L{left:.0f} {top}L{right:.0f} {top}L{right:.0f} {base}",
                                 class_=kind))  # fmt: skip
    words = [
        element("text", word, x=word_width * (index + 0.5), y=above + 17, text_anchor="middle", class_="word")
        for index, word in enumerate(tree.words)
    ]
    right = len(gold & set(predicted))
    drawing = element("svg", paths, words, width=width, height=middle + below, class_="arcs", role="img",
                      aria_label=f"{right} of {len(gold)} edges predicted")  # fmt: skip
    return figure(f"{right} of {len(gold)} edges", scrolling(drawing))


def _level(edge: Edge, edges: set[Edge]) -> int:
    """Drawing level of an edge: one above the highest edge within it."""
    inner = [other for other in edges if other != edge and edge[0] <= other[0] and other[1] <= edge[1]]
    return 1 + max((_level(other, edges) for other in inner), default=0)


def _kept(tree: Tree) -> list[int]:
    return [index for index, tag in enumerate(tree.tags) if tag != "PUNCT"]


def _by_layer_and_sentence(
    model: Model, parts: Sequence[Sequence[Tree]], layers: Sequence[int]
) -> Iterator[tuple[int, list[list[np.ndarray]]]]:
    """Yield each layer with the (n, D) vectors of the sentences of each part."""
    for first in range(0, len(layers), _LAYERS_AT_A_TIME):
        chosen = layers[first : first + _LAYERS_AT_A_TIME]
        computed = [word_vectors(model, [tree.text for tree in trees], [tree.spans for tree in trees], chosen)
                    for trees in parts]  # fmt: skip
        ends = [np.cumsum([len(tree.words) for tree in trees])[:-1] for trees in parts]
        for number, layer in enumerate(chosen):
            yield layer, [np.split(rows[number], some) for rows, some in zip(computed, ends, strict=True)]


def _distances(rows: Tensor) -> Tensor:
    """(..., n, K) to (..., n, n) squared distances."""
    squares = rows.square().sum(-1)
    return (squares[..., :, None] + squares[..., None, :] - 2 * rows @ rows.mT).clamp(min=0)
