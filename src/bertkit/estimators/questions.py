"""Question answering and multiple choice estimators. Shape letters: N questions, C choices."""

from typing import Any, ClassVar

import numpy as np

from bertkit.estimators.estimator import TextEstimator
from bertkit.tasks import MultipleChoice, QuestionAnswering, TextTask


class QuestionAnswerer(TextEstimator):
    """Extractive question answering: the span of a text that answers a question.

    X are pairs of question and context, y the answers: a text, which means its first occurrence in the context;
    (text, start) with the start in characters; or "" if there is none. Parameters are those of
    `TextEstimator` with ``max_answer_length``, tokens, None: from the answers, and ``num_candidates``.
    """

    _task: ClassVar[type[TextTask]] = QuestionAnswering

    def predict(self, X: Any) -> np.ndarray:
        """(N,) objects, the answer texts, "" for no answer."""
        return np.array([one.answer.text if one.answer else "" for one in self._predictions(X)], object)

    def score(self, X: Any, y: Any) -> float:
        """SQuAD's F1."""
        return self._metrics(self._examples(X, y), self._trained_task)["f1"]


class MultipleChoiceClassifier(TextEstimator):
    """Multiple choice: the choice that continues a text, or answers a question.

    X are pairs of a text and a list of choices, y the indices of the right ones. Parameters are those of
    `TextEstimator`.
    """

    _task: ClassVar[type[TextTask]] = MultipleChoice

    def predict(self, X: Any) -> np.ndarray:
        """(N,) int64, the indices of the likeliest choices."""
        return np.array([one.choice for one in self._predictions(X)], np.int64)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, C) float64, the probability of each choice; 0 for choices that a question lacks."""
        of_questions = [one.probabilities for one in self._predictions(X)]
        probabilities = np.zeros((len(of_questions), max(map(len, of_questions), default=0)))
        for row, values in zip(probabilities, of_questions, strict=True):
            row[: len(values)] = values
        return probabilities

    def score(self, X: Any, y: Any) -> float:
        """Accuracy."""
        return self._metrics(self._examples(X, y), self._trained_task)["accuracy"]
