"""Sentence encoders with scikit-learn's interface."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bertkit.estimators.estimator import TextEstimator, items_of
from bertkit.tasks import Similarity, TextTask


class SentenceEncoder(TransformerMixin, TextEstimator):
    """Vectors of texts whose cosines say how similar they are, learned from pairs, triplets, scored pairs or texts.

    Parameters are those of `TextEstimator`, among them the options of `Similarity`: objective, temperature,
    directions, dimensions and so on.
    """

    _task: ClassVar[type[TextTask]] = Similarity

    def fit(self, X: Any, y: Any = None, *, dev: tuple[Any, Any] | None = None) -> Self:
        """Train.

        Args:
            X: rows: (text, positive), (text, positive, negative, ...), `TextSet`, or texts alone.
            y: (N,) scores of pairs; None: rows have none.
            dev: other rows and scores, by which the best weights are kept; None: the last are.

        Raises:
            UsageError: lengths that differ, a parameter that cannot be.
            DataError: rows that cannot be learned.
        """
        return super().fit(X, y, dev=dev)

    def transform(self, X: Any) -> np.ndarray:
        """(N, E) float32 vectors of texts."""
        check_is_fitted(self, "model_")
        return self.model_.embed(items_of(X))

    def score_pairs(self, X: Any) -> np.ndarray:
        """(N,) float64 cosines of pairs of texts."""
        return np.array([one.score for one in self._predictions(X)], np.float64)

    def _examples(self, X: Any, y: Any) -> list[Any]:
        return super()._examples(X, [None] * len(items_of(X)) if y is None else y)
