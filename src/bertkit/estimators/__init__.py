"""Tasks behind scikit-learn's methods: fit, predict, predict_proba, score.

Takes: texts or pairs of texts, and labels, as lists or arrays.
Gives: estimators that work in cross_val_score, GridSearchCV and Pipeline; arrays of labels, probabilities, numbers.
May import: errors, whole_files, json_files, tasks, finetuning, model.
"""

from bertkit.errors import DependencyError

try:
    import sklearn  # noqa: F401
except ImportError:
    raise DependencyError("scikit-learn is not installed: pip install 'bertkit[sklearn]'") from None

from bertkit.estimators.estimator import TextEstimator
from bertkit.estimators.sequences import FewShotClassifier, SequenceClassifier, SequenceRegressor

__all__ = ["FewShotClassifier", "SequenceClassifier", "SequenceRegressor", "TextEstimator"]
