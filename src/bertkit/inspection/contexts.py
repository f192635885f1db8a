"""Words in context: nearest occurrences, a map of senses by layer, and how contextual each layer is.

Shape letters: n occurrences, S layers (embeddings and every layer), D hidden_size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bertkit.errors import UsageError, check_several, checked_count
from bertkit.inspection.contextual import cosines, drawn_words, first_occurrence, spans_by_text, word_vectors
from bertkit.inspection.scatter import Cloud, projections, scatter_parts, scatter_program
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Line, Markup, Program, data, line_chart, paragraph, section, table
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.tokenizer import listed_texts

_NUM_BASELINE_WORDS = 1_000
_MOST_NEIGHBORS_SHOWN = 12  # occurrences whose neighbors are shown


@dataclass(frozen=True, eq=False)
class ContextsView(View):
    """Occurrences of a word in a corpus, layer by layer."""

    title: ClassVar[str] = "Words in context"
    smaller: ClassVar[str] = "give fewer texts"
    word: str
    texts: list[str]  # n, the text of each occurrence
    spans: list[Span]  # n
    senses: list[str] | None  # n labels
    neighbors: np.ndarray  # (S, n, k) indices of the nearest other occurrences, nearest first
    similarities: np.ndarray  # (S, n, k) their cosines
    self_similarity: np.ndarray  # (S,) mean cosine of two occurrences (Ethayarajh 2019)
    anisotropy: np.ndarray  # (S,) mean cosine of two occurrences of different words
    same_sense: np.ndarray | None  # (S,) share of occurrences whose nearest neighbor has their sense
    explained: np.ndarray  # (S, n) shares of variance of the principal components
    points: np.ndarray  # (S, n, 2)

    def rows(self) -> list[dict[str, Any]]:
        columns = {"same_word": self.self_similarity, "different_words": self.anisotropy}
        if self.same_sense is not None:
            columns["nearest_has_same_sense"] = self.same_sense
        return [
            {"layer": layer} | {name: float(values[layer]) for name, values in columns.items()}
            for layer in range(len(self.self_similarity))
        ]

    def parts(self) -> list[Markup]:
        layers = np.arange(len(self.self_similarity), dtype=np.float64)
        curves = [
            Line("same word", layers, self.self_similarity),
            Line("different words (baseline)", layers, self.anisotropy, color=2, look="dashed"),
            Line("same word, above the baseline", layers, self.self_similarity - self.anisotropy, color=3),
        ]
        if self.same_sense is not None:
            curves.append(Line("nearest has the same sense (share)", layers, self.same_sense, color=4))
        last = len(layers) - 1
        rows = []
        for index in range(min(len(self.texts), _MOST_NEIGHBORS_SHOWN)):
            for rank in range(min(3, self.neighbors.shape[2])):
                other = int(self.neighbors[last, index, rank])
                similarity = float(self.similarities[last, index, rank])
                rows.append([self._shown(index) if rank == 0 else None, self._shown(other), similarity])
        return [
            paragraph(
                f"{len(self.texts)} occurrences of ", data(self.word), ". Each is a vector at each layer: the mean of "
                "its pieces. Layer 0 is the embeddings, which encode only the word and its position.",
            ),
            *scatter_parts("Map of occurrences", "Two principal components at each layer; near means similar."),
            section(
                "Static or contextual",
                line_chart("Cosine by layer", curves, x_name="layer", x_kind="integer", y_name="cosine",
                           note="One vector for all contexts would give the same word a cosine of 1."),
            ),
            section(
                "Nearest occurrences in the last layer",
                table(["occurrence", "nearest", "cosine"], rows),
            ),
        ]  # fmt: skip

    def program(self) -> Program:
        clouds = [
            Cloud(f"layer {layer}", points, float(shares[:2].sum()))
            for layer, (points, shares) in enumerate(zip(self.points, self.explained, strict=True))
        ]
        hints = [
            f"{text[:start]}[{text[start:end]}]{text[end:]}"
            for text, (start, end) in zip(self.texts, self.spans, strict=True)
        ]
        return scatter_program(clouds, hints, self.senses)

    def _shown(self, index: int) -> str:
        text, (start, end) = self.texts[index], self.spans[index]
        before, after = text[max(0, start - 40) : start], text[end : end + 40]
        return f"{'…' if start > 40 else ''}{before}[{text[start:end]}]{after}{'…' if len(text) > end + 40 else ''}"


def inspect_contexts(
    model: Model, word: str, texts: Sequence[str], *, senses: Sequence[str] | None = None, top_k: int = 5, seed: int = 0
) -> ContextsView:
    """View of the first occurrence of a word in each text that contains it.

    Args:
        word: matched as a whole word, ignoring case.
        senses: a label for each text.
        seed: seed of the random words of the baseline.

    Raises:
        OverLengthError: a text has more tokens than the model accepts.
        UsageError: fewer than three texts with the word, a str instead of texts, different numbers of senses and texts,
            or ``top_k`` below 1.
    """
    check_model(model)
    texts = listed_texts(texts)
    top_k, seed = checked_count("top_k", top_k), checked_count("seed", seed, 0)
    if senses is not None:
        check_several("senses", senses)
        senses = list(senses)
    if senses is not None and len(senses) != len(texts):
        raise UsageError(f"{len(senses)} senses for {len(texts)} texts: expected one for each")
    matches = [(index, span) for index, text in enumerate(texts) if (span := first_occurrence(word, text))]
    if len(matches) < 3:
        raise UsageError(f"{len(matches)} of {len(texts)} texts contain the word {word!r}: expected at least 3")
    chosen, spans = [texts[index] for index, _ in matches], [span for _, span in matches]
    vectors = word_vectors(model, chosen, [[span] for span in spans])  # (S, n, D)
    drawn = drawn_words(chosen, _NUM_BASELINE_WORDS, seed)
    names = np.array([chosen[index][start:end].lower() for index, (start, end) in drawn])
    different = names[:, None] != names
    baseline = word_vectors(model, chosen, spans_by_text(chosen, drawn))
    labels = None if senses is None else [senses[index] for index, _ in matches]
    neighbors, similarities, own_similarity, anisotropy, agreement = [], [], [], [], []
    count = min(top_k, len(chosen) - 1)
    for own, random in zip(vectors, baseline, strict=True):
        similar = cosines(own, own)
        own_similarity.append(similar[~np.eye(len(own), dtype=np.bool_)].mean())
        np.fill_diagonal(similar, -np.inf)
        nearest = np.argsort(-similar, axis=1, kind="stable")[:, :count]
        neighbors.append(nearest)
        similarities.append(np.take_along_axis(similar, nearest, axis=1))
        anisotropy.append(cosines(random, random)[different].mean() if different.any() else np.nan)
        if labels is not None:
            agreement.append(np.mean([labels[i] == labels[near[0]] for i, near in enumerate(nearest)]))
    points, explained = projections(vectors)
    return ContextsView(
        word=word,
        texts=chosen,
        spans=spans,
        senses=labels,
        neighbors=np.array(neighbors),
        similarities=np.array(similarities),
        self_similarity=np.array(own_similarity),
        anisotropy=np.array(anisotropy),
        same_sense=None if labels is None else np.array(agreement),
        explained=explained,
        points=points,
    )
