"""Sentence encoders as scikit-learn transformers."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bertkit.errors import UsageError
from bertkit.estimators.estimator import TextEstimator, items_of
from bertkit.tasks import Similarity, TextTask


class SentenceEncoder(TransformerMixin, TextEstimator):
    """Sentence encoder trained on pairs, triplets, scored pairs or texts, whose cosines measure similarity.

    Parameters are those of `TextEstimator`, including the options of `Similarity`: objective, temperature,
    directions, dimensions and others.
    """

    _task: ClassVar[type[TextTask]] = Similarity

    def fit(self, X: Any, y: Any = None, *, dev: tuple[Any, Any] | None = None) -> Self:
        """Fine-tune the model.

        Args:
            X: rows: (text, positive), (text, positive, negative, ...), `TextSet`, or texts alone.
            y: (N,) scores of pairs; None: rows without scores.
            dev: held-out rows and scores, which select the best weights; None: the last weights are kept.

        Raises:
            UsageError: different lengths, or an invalid parameter.
            DataError: unusable rows.
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
        items = items_of(X)
        if not items:
            raise UsageError("no rows: expected at least one")
        return super()._examples(items, [None] * len(items) if y is None else y)
