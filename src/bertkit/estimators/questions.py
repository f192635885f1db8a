"""Finder of answers in texts, and chooser among several. Shape letters: N questions, C choices."""

from typing import Any, ClassVar

import numpy as np

from bertkit.estimators.estimator import TextEstimator
from bertkit.tasks import MultipleChoice, QuestionAnswering, TextTask


class QuestionAnswerer(TextEstimator):
    """Where in a text is the answer to a question.

    X are pairs of question and context, y the answers: a text that stands in the context, first where it stands first;
    (text, start) with the character at which it starts; or "" where there is none. Parameters are those of
    `TextEstimator` with ``max_answer_length``, tokens, None: from the answers, and ``num_candidates``.
    """

    _task: ClassVar[type[TextTask]] = QuestionAnswering

    def predict(self, X: Any) -> np.ndarray:
        """(N,) objects, the texts of the answers, "" where there is none."""
        return np.array([one.answer.text if one.answer else "" for one in self._predictions(X)], object)

    def score(self, X: Any, y: Any) -> float:
        """SQuAD's F1."""
        return self._metrics(self._examples(X, y), self._trained_task)["f1"]


class MultipleChoiceClassifier(TextEstimator):
    """Multiple choice: the choice that continues a text, or answers a question.

    X are pairs of a text and a list of choices, y the numbers of the right ones, from 0. Parameters are those of
    `TextEstimator`.
    """

    _task: ClassVar[type[TextTask]] = MultipleChoice

    def predict(self, X: Any) -> np.ndarray:
        """(N,) int64, the numbers of the likeliest choices."""
        return np.array([one.choice for one in self._predictions(X)], np.int64)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, C) float64, the probability of each choice; 0 beyond those of a question with fewer."""
        of_questions = [one.probabilities for one in self._predictions(X)]
        probabilities = np.zeros((len(of_questions), max(map(len, of_questions), default=0)))
        for row, values in zip(probabilities, of_questions, strict=True):
            row[: len(values)] = values
        return probabilities

    def score(self, X: Any, y: Any) -> float:
        """Accuracy."""
        return self._metrics(self._examples(X, y), self._trained_task)["accuracy"]
