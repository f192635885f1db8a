"""A classifier on a learned weighted sum of layers (scalar mix).

Shape letters: N texts, S layers, D hidden_size, C classes.
"""

from typing import Any, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y

from bertkit.errors import UsageError, warn


class ScalarMixClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression on a weighted sum of layers, with learned weights.

    The weights are positive and sum to one: the scalar mix of ELMo (Peters et al. 2018, equation 1), whose factor
    gamma is part of the coefficients here. The objective is that of scikit-learn's logistic regression,
    ``C * sum of losses + |coef|^2 / 2``, minimized by L-BFGS over coefficients and mix jointly. Two classes have two
    vectors of coefficients too; scikit-learn has one, their difference, and its C is twice this one.

    Its input are the concatenated features of several layers:
    ``make_pipeline(Features(model, layers="concat:all"), ScalarMixClassifier(num_layers=12))``.

    Args:
        num_layers: number of equally wide vectors in a row of ``X``.
        C: weight of the losses against the size of the coefficients.
        max_iter: maximum number of steps of L-BFGS.
        tol: convergence: the largest component of the gradient is below it.

    Attributes:
        classes_: (C,) the classes, in the order of ``predict_proba``.
        layer_weights_: (S,) weight of each layer.
        coef_: (C, D).
        intercept_: (C,).
        n_iter_: steps taken.
        n_features_in_: S * D.
    """

    def __init__(self, num_layers: int, *, C: float = 1.0, max_iter: int = 1_000, tol: float = 1e-4) -> None:
        self.num_layers, self.C, self.max_iter, self.tol = num_layers, C, max_iter, tol

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to (N, S * D) features and (N,) classes; issues a ConvergenceWarning if ``max_iter`` is reached.

        Raises:
            UsageError: fewer than two classes, a width that is not a multiple of ``num_layers``, or a ``C`` that is not
                above 0.
        """
        if not self.C > 0:
            raise UsageError(f"C={self.C}: expected a number above 0")
        X, y = check_X_y(X, y, dtype=(np.float32, np.float64))
        layers = self._layers(X)
        self.classes_, label_ids = np.unique(y, return_inverse=True)
        num_classes, width = len(self.classes_), layers.shape[2]
        if num_classes < 2:
            raise UsageError(f"every text has the class {self.classes_.tolist()[0]!r}: expected two classes or more")
        share = 1 / (self.C * len(layers))

        def loss_and_slopes(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            """Mean loss of a text plus the penalty on the coefficients, and its gradient."""
            scores, coef, intercept = self._parts(parameters, num_classes, width)
            weights = softmax(scores)
            mixed = _mix(layers, weights)
            log_probs = log_softmax(mixed @ coef.T + intercept, axis=1)  # (N, C)
            loss = -log_probs[np.arange(len(layers)), label_ids].mean() + share * (coef**2).sum() / 2
            errors = np.exp(log_probs)
            errors[np.arange(len(layers)), label_ids] -= 1
            errors /= len(layers)
            by_mixed = (errors @ coef).astype(layers.dtype)  # (N, D)
            by_weights = np.array([np.vdot(layers[:, layer], by_mixed) for layer in range(len(weights))], np.float64)
            by_scores = weights * (by_weights - weights @ by_weights)
            by_coef = errors.T @ mixed + share * coef
            return float(loss), np.concatenate([by_scores, by_coef.ravel(), errors.sum(axis=0)])

        start = np.zeros(self.num_layers + num_classes * (width + 1))
        options = {"maxiter": self.max_iter, "gtol": self.tol, "ftol": 64 * np.finfo(np.float64).eps, "maxls": 50}
        optimum = minimize(loss_and_slopes, start, jac=True, method="L-BFGS-B", options=options)
        if optimum.status == 1:
            warn(f"not converged after {optimum.nit} steps: raise max_iter, or scale the features", ConvergenceWarning)
        scores, self.coef_, self.intercept_ = self._parts(optimum.x, num_classes, width)
        self.layer_weights_, self.n_iter_, self.n_features_in_ = softmax(scores), optimum.nit, X.shape[1]
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(N,) the likeliest classes."""
        likeliest = self._logits(X).argmax(axis=1)
        return self.classes_[likeliest]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, C) float64, the probability of each class."""
        return softmax(self._logits(X), axis=1)

    def decision_function(self, X: Any) -> np.ndarray:
        """(N, C) float64, the logits of `predict_proba`; for two classes (N,), that of the second minus the first, as
        in scikit-learn.

        Raises:
            UsageError: features whose width differs from that in ``fit``.
        """
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def _logits(self, X: Any) -> np.ndarray:
        """(N, C) float64."""
        check_is_fitted(self, "coef_")
        layers = self._layers(check_array(X, dtype=(np.float32, np.float64)))
        if layers.shape[2] != self.coef_.shape[1]:
            raise UsageError(f"layers have width {layers.shape[2]}: expected {self.coef_.shape[1]}, as in fit")
        return _mix(layers, self.layer_weights_) @ self.coef_.T + self.intercept_

    def _layers(self, X: np.ndarray) -> np.ndarray:
        """(N, S * D) to (N, S, D)."""
        if self.num_layers < 1 or X.shape[1] % self.num_layers:
            raise UsageError(f"num_layers={self.num_layers} does not divide features of width {X.shape[1]}")
        return X.reshape(len(X), self.num_layers, -1)

    def _parts(self, parameters: np.ndarray, num_classes: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Split a vector of all parameters into (S,) scores of the mix, (C, D) coefficients and (C,) intercept."""
        end = self.num_layers + num_classes * width
        coef = parameters[self.num_layers : end].reshape(num_classes, width)
        return parameters[: self.num_layers], coef, parameters[end:]


def _mix(layers: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(N, S, D) to (N, D)."""
    return weights.astype(layers.dtype) @ layers
