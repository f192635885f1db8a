"""A simple baseline on the same examples, and its learning curve.

For texts: TF-IDF of words and pairs of words with a linear support vector machine, for numbers with ridge regression
(scikit-learn).
For words: the tag that a word has most often in the training data, for an unknown word the most frequent of all.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.errors import DependencyError
from bertkit.evidence.intervals import Measured, bootstrap_difference, bootstrap_scores
from bertkit.evidence.leakage import whole_text
from bertkit.evidence.outcomes import Outcomes
from bertkit.tasks import JudgedTask, TaggedText

_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
_UNSEEN = 1e-6
"""Count of a tag that a word never has in training."""


@dataclass(frozen=True)
class SizeScore:
    """A score after training on some of the examples."""

    num_train: int
    score: Measured


@dataclass(frozen=True)
class Baseline:
    """Scores of a simple method, trained on the same examples."""

    method: str
    num_train: int
    scores: dict[str, Measured]
    difference: dict[str, Measured]  # model minus baseline, on the same bootstrap samples
    by_size: list[SizeScore]


def baseline_of(outcomes: Outcomes, train: Sequence[Any], metric: str) -> Baseline:
    """Train the baseline on all and on parts of the training examples.

    Args:
        train: examples of the same task with labels.
        metric: the score to report for parts.

    Raises:
        DataError: a label of ``train`` that is missing or unknown to the model.
        DependencyError: scikit-learn is required and not installed.
    """
    task, scoring, order = outcomes.task, outcomes.task.scoring, np.random.default_rng(0).permutation(len(train))
    by_size, plain_rows, scores = [], outcomes.rows, {}
    for size in sorted({max(1, round(share * len(train))) for share in _SHARES}):
        predicted = predict_baseline(task, [train[number] for number in order[:size].tolist()], outcomes.examples)
        plain_rows = scoring.rows(outcomes.targets, predicted, outcomes.example_of, len(outcomes.examples))
        scores = bootstrap_scores(scoring, plain_rows)
        by_size.append(SizeScore(size, scores[metric]))
    difference = bootstrap_difference(scoring, outcomes.rows, plain_rows)
    return Baseline(_method(outcomes), len(train), scores, difference, by_size)


def predict_baseline(task: JudgedTask, train: Sequence[Any], examples: Sequence[Any]) -> np.ndarray:
    """Predictions of the baseline, in the form of `Outcomes.predicted`.

    Raises:
        DataError: a label of ``train`` that is missing or unknown to the model.
        DependencyError: scikit-learn is required and not installed.
    """
    targets = task.truth(train)
    if task.of_words:
        return _most_frequent_tags(task, train, targets, examples)
    vectors, train_vectors = tf_idf_vectors(train, examples)
    if targets.dtype.kind == "f":
        from sklearn.linear_model import Ridge

        scale = np.abs(targets).max() or 1.0  # it computes in float32, where squares of large scores are infinite
        return scale * Ridge().fit(train_vectors, targets / scale).predict(vectors).astype(np.float64)
    if targets.ndim == 2:
        return np.stack([_classes(train_vectors, has, vectors) for has in targets.T], axis=1)
    return _classes(train_vectors, targets, vectors)


def tf_idf_vectors(train: Sequence[Any], examples: Sequence[Any]) -> tuple[Any, Any]:
    """Sparse TF-IDF rows of words and word pairs for ``train`` and ``examples``; the vocabulary is from ``train``. If
    that has no words, rows of one zero, which predict as if there were no text.

    Raises:
        DependencyError: scikit-learn is not installed.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise DependencyError("scikit-learn is not installed: pip install 'bertkit[sklearn]'") from None
    # keep single letters and punctuation, so that no text is empty
    texts = [whole_text(example) for example in train]
    if not any(map(str.strip, texts)):  # such as one row of an empty text at the start of the curve
        return np.zeros((len(examples), 1)), np.zeros((len(train), 1))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]", dtype=np.float32)
    train_vectors = vectorizer.fit_transform(texts)
    return vectorizer.transform(map(whole_text, examples)), train_vectors


def _classes(train_vectors: Any, targets: np.ndarray, vectors: Any) -> np.ndarray:
    """Predictions of a linear support vector machine, which fits twenty times as fast as logistic regression with many
    labels; the only target if all are the same."""
    from sklearn.svm import LinearSVC

    if (targets == targets[0]).all():
        return np.full(vectors.shape[0], targets[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about few examples for many labels, as at the start of the curve
        return LinearSVC(random_state=0).fit(train_vectors, targets).predict(vectors)


def _most_frequent_tags(
    task: Any, train: Sequence[TaggedText], targets: np.ndarray, examples: Sequence[TaggedText]
) -> np.ndarray:
    """(W,) int64, decoded like the model's; scores are tag frequencies of each word."""
    numbers: dict[str, int] = {}
    indices = np.array([numbers.setdefault(word, len(numbers)) for word in _words(train)], np.int64)
    shape = len(numbers) + 1, len(task.label_names)
    counts = np.bincount(indices * shape[1] + targets, minlength=shape[0] * shape[1]).reshape(shape)
    counts[-1] = counts.sum(axis=0)  # for words absent from training
    shares = counts / counts.sum(axis=1, keepdims=True)
    scores = np.log(shares + _UNSEEN)[[numbers.get(word, -1) for word in _words(examples)]]
    return task.likeliest(scores, np.cumsum([0, *(len(example.words or ()) for example in examples)]))


def _words(examples: Sequence[TaggedText]) -> list[str]:
    return [example.text[start:end] for example in examples for start, end in example.words or ()]


def _method(outcomes: Outcomes) -> str:
    if outcomes.task.of_words:
        return "the tag that each word has most often in training"
    if outcomes.has_numbers:
        return "TF-IDF of words and pairs of words, ridge regression"
    return "TF-IDF of words and pairs of words, linear support vector machine"
