"""Heads over a corpus: what they attend to, which syntactic relations they follow, and the effect of removing them.

Shape letters: S layers, H num_heads, L tokens.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, collate
from bertkit.errors import UsageError
from bertkit.inference import Trace
from bertkit.inspection.attention import AttentionView
from bertkit.inspection.contextual import Tree
from bertkit.inspection.shared_weights import sharing_weights
from bertkit.inspection.view import View, own_file
from bertkit.model import Model, check_model
from bertkit.pages import Markup, Program, heat_map, paragraph, section, table
from bertkit.tokenizer.tokenizer import listed_texts
from bertkit.transformer import Encoder

STATISTICS = {
    "self": "attention to the token itself",
    "previous": "attention to the token before",
    "next": "attention to the token after",
    "cls": "attention to the first token, [CLS]",
    "sep": "attention to the separators, [SEP]",
    "punctuation": "attention to punctuation",
    "entropy": "entropy of the attention of a token, in nats",
    "distance": "mean distance between attending and attended token, in tokens",
}
"""Names of statistics; each is a mean over the tokens of all texts (Clark et al. 2019, section 3; distance: Vig &
Belinkov 2019)."""

_MOST_ABLATED = 8
"""Number of texts on which heads are removed, one by one."""

_TITLES = {"cls": "[CLS]", "sep": "[SEP]"}

OFFSETS = (-3, -2, -1, 1, 2, 3)
"""Fixed offsets, in words, as baselines for heads."""


@dataclass(frozen=True)
class Relation:
    """How well the best head follows one syntactic relation."""

    name: str
    count: int
    layer: int  # from 1
    head: int  # from 1
    from_head: bool  # the head attends to the dependent; else the dependent attends to its head
    accuracy: float  # share of words whose most attended other word is correct
    baseline: float  # the same for the best fixed offset
    offset: int  # of that baseline, from the dependent


@dataclass(frozen=True, eq=False)
class HeadsView(View):
    """Statistics of every head; a cell of a map opens the attention view of the first text."""

    title: ClassVar[str] = "Heads"
    smaller: ClassVar[str] = "give a shorter first text"
    num_texts: int
    num_tokens: int
    statistics: dict[str, np.ndarray]  # (S, H) each
    uniform_entropy: float  # in nats, of uniform attention
    importance: np.ndarray  # (S, H): mean cosine distance of the last hidden states of the first texts without the head
    relations: list[Relation]  # of a corpus with trees
    example: Trace

    def numbers(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "example"}

    def rows(self) -> list[dict[str, Any]]:
        """The relations of a treebank; without one, each statistic of a layer as the mean over its heads."""
        columns = self.statistics | {"importance": self.importance}
        return [vars(relation) for relation in self.relations] or [
            {"layer": layer} | {name: float(values[layer - 1].mean()) for name, values in columns.items()}
            for layer in range(1, len(self.importance) + 1)
        ]

    def parts(self) -> list[Markup]:
        maps = [
            self._map(_TITLES.get(name, name.capitalize()), self.statistics[name], note)
            for name, note in STATISTICS.items()
        ]  # fmt: skip
        rows = [
            [one.name, one.count, f"{one.layer}-{one.head}", one.accuracy, one.baseline, f"{one.offset:+d}",
             "head to dependent" if one.from_head else "dependent to head"]
            for one in self.relations
        ]  # fmt: skip
        names = ["relation", "words", "head", "accuracy", "best offset", "offset", "direction"]
        return [
            paragraph(
                f"{self.num_texts} texts, {self.num_tokens} tokens. Choose a cell to see that head on the first text, "
                f"below. Uniform attention has an entropy of {self.uniform_entropy:.2f} nats."
            ),
            *([section("Syntactic relations", table(names, rows))] if rows else []),
            section("What heads attend to", *maps),
            section(
                "Effect of removing a head",
                self._map(
                    "Ablation",
                    self.importance,
                    "mean cosine distance of the last hidden states without it, over "
                    f"the first {min(self.num_texts, _MOST_ABLATED)} texts",
                    4,
                ),
            ),
            *AttentionView(self.example).parts(),
        ]

    def program(self) -> Program:
        view = AttentionView(self.example).program()
        return Program(view.style + own_file("heads.css"), view.script + own_file("heads.js"), view.data)

    def _map(self, title: str, values: np.ndarray, note: str, digits: int = 2) -> Markup:
        layers = [str(layer + 1) for layer in range(len(values))]
        heads = [str(head + 1) for head in range(values.shape[1])]
        written = [[f"{value:.{digits}f}" for value in row] for row in values.tolist()]
        return heat_map(title, values, layers, heads, row_name="layer", column_name="head", written=written, note=note)


def inspect_heads(model: Model, texts: Sequence[str] | Sequence[Tree]) -> HeadsView:
    """Statistics of every head over texts, or over sentences with trees, which add syntactic relations.

    Raises:
        OverLengthError: a text has more tokens than the model accepts.
        UsageError: no texts, an empty one, a str instead of texts, or a mix of texts and trees.
    """
    check_model(model)
    texts = listed_texts(texts)
    if not texts:
        raise UsageError("no texts: expected at least one")
    trees = [text for text in texts if isinstance(text, Tree)]
    if trees and len(trees) < len(texts):
        raise UsageError(f"{len(trees)} of {len(texts)} texts are trees: expected all of them, or none")
    plain = [text.text if isinstance(text, Tree) else text for text in texts]
    sums: dict[str, np.ndarray] = {}
    num_tokens, uniform = 0, 0.0
    matrices, example = [], None
    for number, text in enumerate(plain):
        trace = model.trace(text)
        example = trace if example is None else example
        probs = np.stack([layer.attention_probs for layer in trace.layers.values()]).astype(np.float64)
        for name, values in head_statistics(trace, probs).items():
            sums[name] = sums.get(name, 0) + values * len(trace)
        num_tokens += len(trace)
        uniform += len(trace) * float(np.log(len(trace)))
        if trees:
            matrices.append(word_attention(trace, probs, trees[number]))
    assert example is not None
    return HeadsView(
        num_texts=len(plain),
        num_tokens=num_tokens,
        statistics={name: values / num_tokens for name, values in sums.items()},
        uniform_entropy=uniform / num_tokens,
        importance=ablation(model, plain),
        relations=relation_scores(matrices, trees),
        example=example,
    )


def head_statistics(trace: Trace, probs: np.ndarray) -> dict[str, np.ndarray]:
    """STATISTICS of one trace.

    Args:
        probs: (S, H, L, L) float64.

    Returns:
        (S, H) means over the L attending tokens, by name.
    """
    length = len(trace)
    is_special = trace.special_tokens_mask
    separators = is_special & (np.arange(length) > 0)
    marks = np.array([_is_punctuation(trace.text_of(index)) for index in range(length)]) & ~is_special
    indices = np.arange(length)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(probs > 0, probs * np.log(probs), 0.0).sum(-1).mean(-1)
    return {
        "self": probs[..., indices, indices].sum(-1) / length,
        "previous": probs[..., indices[1:], indices[:-1]].sum(-1) / length,
        "next": probs[..., indices[:-1], indices[1:]].sum(-1) / length,
        "cls": probs[..., 0].mean(-1),
        "sep": probs[..., separators].sum(-1).mean(-1),
        "punctuation": probs[..., marks].sum(-1).mean(-1),
        "entropy": entropy,
        "distance": (probs * np.abs(indices[:, None] - indices)).sum(-1).mean(-1),
    }


def word_attention(trace: Trace, probs: np.ndarray, tree: Tree) -> np.ndarray:
    """Attention between the words of a tree: the sum over the pieces of the attended word, the mean over those of the
    attending word.

    Returns:
        (S, H, n, n), zero on the diagonal.
    """
    starts, ends = trace.offsets.T
    pieces = [np.flatnonzero((starts < ends) & (starts < end) & (ends > start)) for start, end in tree.spans]
    onto = np.zeros((len(trace), len(tree.words)))
    for word, own in enumerate(pieces):
        onto[own, word] = 1
    matrix = (onto / np.maximum(onto.sum(axis=0), 1)).T @ (probs @ onto)
    indices = np.arange(len(tree.words))
    matrix[..., indices, indices] = 0
    return matrix


def relation_scores(matrices: Sequence[np.ndarray], trees: Sequence[Tree], least: int = 20) -> list[Relation]:
    """For each relation with at least ``least`` words, the head whose strongest attention follows it most often,
    compared with the best fixed offset (Clark et al. 2019, section 4.2), most frequent relation first. Roots and
    punctuation are omitted.

    Args:
        matrices: (S, H, n, n) of each tree.
    """
    hits: dict[str, list[np.ndarray]] = {}
    offsets: dict[str, list[int]] = {}
    for matrix, tree in zip(matrices, trees, strict=True):
        to_head, from_head = matrix.argmax(axis=-1), matrix.argmax(axis=-2)  # (S, H, n)
        for word, (head, name) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head < 0 or name == "punct":
                continue
            hits.setdefault(name, []).append(np.stack([to_head[..., word] == head, from_head[..., word] == head]))
            offsets.setdefault(name, []).append(head - word)
    scores = []
    for name, results in sorted(hits.items(), key=lambda item: -len(item[1])):
        if len(results) < least:
            continue
        accuracy = np.mean(results, axis=0)  # (2, S, H)
        way, layer, head = np.unravel_index(accuracy.argmax(), accuracy.shape)
        shares = {offset: float(np.mean(np.array(offsets[name]) == offset)) for offset in OFFSETS}
        best = max(shares, key=lambda offset: shares[offset])
        scores.append(
            Relation(name, len(results), int(layer) + 1, int(head) + 1, bool(way), float(accuracy.max()),
                     shares[best], best)
        )  # fmt: skip
    return scores


def ablation(model: Model, texts: Sequence[str], most: int = _MOST_ABLATED) -> np.ndarray:
    """(S, H) mean cosine distance between the last hidden states with and without each head, over the tokens of the
    first ``most`` texts. A head is removed by zeroing its part of the input of the output matrix."""
    batch = collate(model.tokenizer.encode_batch(list(texts[:most]), special_tokens_in_text=True))
    batch = batch.to(model.encoder.embeddings.word.weight.device)
    config, encoder = model.config, sharing_weights(model.encoder)
    lost = np.zeros((config.num_hidden_layers, config.num_attention_heads))
    with torch.no_grad():
        whole = encoder(batch, with_pooled=False).last_hidden_state.cpu().double()
        for layer in range(config.num_hidden_layers):
            for head in range(config.num_attention_heads):
                without = _without(encoder, layer, head, batch)
                lost[layer, head] = float((1 - nn.functional.cosine_similarity(whole, without, dim=-1)).mean())
    return np.maximum(lost, 0.0)


def _without(encoder: Encoder, layer: int, head: int, batch: Batch) -> Tensor:
    order = [cast(Any, module).attention.output for module in encoder.in_order()]
    call, calls = sum(module is order[layer] for module in order[:layer]), count()  # layers may share weights

    def hide(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if next(calls) != call:
            return arguments
        width = arguments[0].shape[-1] // encoder.config.num_attention_heads
        hidden = arguments[0].clone()
        hidden[:, head * width : (head + 1) * width] = 0
        return (hidden, *arguments[1:])

    handle = order[layer].register_forward_pre_hook(hide)
    try:
        return encoder(batch, with_pooled=False).last_hidden_state.cpu().double()
    finally:
        handle.remove()


def _is_punctuation(text: str) -> bool:
    return bool(text.strip()) and all(unicodedata.category(character)[0] == "P" for character in text.strip())
