"""scikit-learn estimators for tasks: fit, predict, predict_proba, score.

Takes: texts, pairs, lists of words, questions, and labels, as lists or arrays.
Gives: estimators that work in cross_val_score, GridSearchCV and Pipeline; labels, probabilities, numbers, answers;
    features of a frozen encoder for other estimators.
May import: version, advice, errors, files, locate, tokenizer, tasks, checkpoint, inference, finetuning, model,
words.
"""

from bertkit.errors import DependencyError

try:
    import sklearn  # noqa: F401
except ImportError:
    raise DependencyError("scikit-learn is not installed: pip install 'bertkit[sklearn]'") from None

from bertkit.estimators.estimator import TextEstimator
from bertkit.estimators.features import Features
from bertkit.estimators.questions import MultipleChoiceClassifier, QuestionAnswerer
from bertkit.estimators.sentences import SentenceEncoder
from bertkit.estimators.sequences import FewShotClassifier, SequenceClassifier, SequenceRegressor
from bertkit.estimators.words import TokenClassifier

__all__ = [
    "Features",
    "FewShotClassifier",
    "MultipleChoiceClassifier",
    "QuestionAnswerer",
    "SentenceEncoder",
    "SequenceClassifier",
    "SequenceRegressor",
    "TextEstimator",
    "TokenClassifier",
]
