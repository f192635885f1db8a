"""Metrics of a sentence encoder over scored pairs, pairs of 0 and 1, and texts with their positives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from bertkit.tasks.examples import TextSet
from bertkit.tasks.text_sets import pair_results

_ROWS_AT_ONCE = 1_024


@dataclass(frozen=True)
class SimilarityPrediction:
    """The cosine of a text with its positive, and with each negative."""

    score: float
    negative_scores: tuple[float, ...] = ()


class ComparedVectors(SimilarityPrediction):
    """A prediction with the vectors for the metrics of rows without scores; they are not printed."""

    vectors: tuple[np.ndarray, np.ndarray]  # (E,) of length 1, of the query and its first positive

    @classmethod
    def of(cls, vectors: np.ndarray, is_negative: np.ndarray) -> Self:
        """From (n, E) vectors of length 1, the query first; ``is_negative`` of each other text."""
        cosines = vectors[1:] @ vectors[0]
        made = cls(float(cosines[0]), tuple(cosines[is_negative].tolist()))
        object.__setattr__(made, "vectors", (vectors[0], vectors[1]))
        return made


class SimilarityScorer:
    """Metrics of a sentence encoder; see `Scorer`.

    For scores: Pearson's and Spearman's correlation with the cosines. For 0 and 1: average precision, and the best
    cosine threshold with its F1 and accuracy. Otherwise ``mrr``, the mean reciprocal rank of each row's first positive
    among those of all rows, ignoring equal texts and the other positives of its query; ``recall_at_1``; and
    ``triplet_accuracy``, the share of rows whose positive is nearer than their negatives.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._rows: list[TextSet] = []
        self._predictions: list[ComparedVectors] = []

    def add(self, examples: Sequence[TextSet], predictions: Sequence[ComparedVectors]) -> None:
        for row in examples:
            if (row.score is None) != (self._kind == "pairs"):
                has, wants = ("no score", "a score") if row.score is None else ("a score", "none")
                raise row.error(
                    f"has {has}, and the rows that the model was trained on have {wants}: give rows of the same kind; "
                    "bertkit evaluate similarity compares any model with scored pairs"
                )
            if self._kind == "binary" and row.score not in (0, 1):
                raise row.error(f"its score is {row.score}: expected 0 or 1")
        self._rows += examples
        self._predictions += predictions

    def results(self) -> dict[str, float]:
        scores = np.array([one.score for one in self._predictions])
        if self._kind == "pairs":
            return {name: float(np.mean(row)) if row else float("nan") for name, row in self.values().items()}
        targets = np.array([row.score for row in self._rows], np.float64)
        return pair_results(targets, scores, is_binary=self._kind == "binary")

    def values(self) -> dict[str, list[float]]:
        """Metrics that are means over rows, with the value of each row; {} for scored pairs."""
        if self._kind != "pairs":
            return {}
        reciprocal, first = self._ranks()
        nearer = [float(one.score > max(one.negative_scores)) for one in self._predictions if one.negative_scores]
        return {"mrr": reciprocal, "recall_at_1": first} | ({"triplet_accuracy": nearer} if nearer else {})

    def _ranks(self) -> tuple[list[float], list[float]]:
        """Reciprocal rank of each positive, and 1 if it is first; ties count against it."""
        if not self._rows:
            return [], []
        vectors = [one.vectors for one in self._predictions]
        queries, positives = (np.stack(side) for side in zip(*vectors, strict=True))
        numbers: dict[str, int] = {}
        texts = np.array([numbers.setdefault(row.texts[1], len(numbers)) for row in self._rows])
        asked: dict[str, set[int]] = {}
        for row in self._rows:
            answers = {numbers[text] for text in row.positives or (row.query,) if text in numbers}
            asked.setdefault(row.query, set()).update(answers)
        _, once = np.unique(texts, return_index=True)  # each text counts once
        ranks = []
        for start in range(0, len(queries), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            scores = queries[part] @ positives[once].T
            own = (queries[part] * positives[part]).sum(axis=1)
            for number, row in enumerate(self._rows[part]):
                others = ~np.isin(texts[once], list(asked[row.query]))
                ranks.append(1 + int((scores[number][others] >= own[number]).sum()))
        return [1 / rank for rank in ranks], [float(rank == 1) for rank in ranks]
