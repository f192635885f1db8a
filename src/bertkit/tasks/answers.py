"""Exact match and F1 of answers, as in the evaluation scripts of SQuAD 1.1 and 2.0.

Rules of evaluate-v1.1.py and evaluate-v2.0.py (Rajpurkar et al. 2016, 2018): answers are compared in lowercase,
without punctuation (ASCII) and without the words a, an, the; F1 is that of the multisets of words; the best of several
true answers counts.
"""

import re
import string
from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """Normalize an answer for comparison."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(answer: str, true: str) -> float:
    """1.0 if both are equal after normalization, else 0.0."""
    return float(normalized(answer) == normalized(true))


def answer_f1(answer: str, true: str) -> float:
    """F1 of the words of an answer. If either has no words, 1.0 if both have none, else 0.0."""
    words, true_words = normalized(answer).split(), normalized(true).split()
    if not words or not true_words:
        return float(words == true_words)
    shared = (Counter(words) & Counter(true_words)).total()
    return 2 * shared / (len(words) + len(true_words))


class AnswerScores:
    """Accumulated scores of answers, with 32 bytes per question, to select a no-answer threshold.

    Args:
        no_answer: questions may have no answer, as in SQuAD 2.0; true answers of only articles and punctuation are
            compared as empty ones. Otherwise, as in 1.1, the F1 of such an answer is 0.
    """

    def __init__(self, *, no_answer: bool) -> None:
        self.no_answer = no_answer
        self._numbers = array("d")  # of each question: exact match, F1, whether it has an answer, margin

    def add(self, answer: str, true_answers: Sequence[str], no_answer_margin: float = float("-inf")) -> None:
        """Add one question.

        Args:
            answer: the best answer, regardless of the threshold; "" if there is none.
            true_answers: empty if the question has no answer.
            no_answer_margin: score of "no answer" minus that of the answer.
        """
        worded = [true for true in true_answers if normalized(true)]
        exact = max(exact_match(answer, true) for true in (worded if self.no_answer else true_answers) or [""])
        f1 = max((answer_f1(answer, true) for true in worded), default=0.0)
        if self.no_answer and not worded:
            f1 = exact
        self._numbers.extend((exact, f1, float(bool(true_answers)), no_answer_margin))

    def results(self, no_answer_threshold: float = float("inf")) -> dict[str, float]:
        """``exact_match`` and ``f1`` if "no answer" is predicted for margins above a threshold.

        If some questions have no answer, also ``answerable_exact_match`` and ``answerable_f1`` of the others, and
        ``unanswerable_accuracy``.
        """
        values = self.values(no_answer_threshold)
        return {name: float(of_questions.mean()) if len(of_questions) else 0.0 for name, of_questions in values.items()}

    def values(self, no_answer_threshold: float = float("inf")) -> dict[str, np.ndarray]:
        """The (n,) numbers of questions whose means are `results`."""
        exact, f1, has_answer, margins = self._columns()
        empty = margins > no_answer_threshold
        exact, f1 = (np.where(empty, 1.0 - has_answer, scores) for scores in (exact, f1))
        values = {"exact_match": exact, "f1": f1}
        answerable = has_answer > 0
        if not answerable.all():
            values["answerable_exact_match"] = exact[answerable]
            values["answerable_f1"] = f1[answerable]
            values["unanswerable_accuracy"] = exact[~answerable]
        return values

    def best_threshold(self) -> float:
        """The threshold with the highest F1 (Devlin et al. 2018, section 4.3), the highest of several.

        It is the middle between two margins, or 1 beyond the outermost; 0 without questions.
        """
        _, f1, has_answer, margins = self._columns()
        if not len(margins):
            return 0.0
        order = np.argsort(margins)
        gains = f1[order] - (1.0 - has_answer[order])
        f1_with = np.concatenate([[0.0], np.cumsum(gains)])  # up to a constant, if the k lowest are answered
        margins = margins[order]
        apart = np.flatnonzero(np.diff(margins) > 0) + 1  # equal margins are answered together
        counts = np.concatenate([[0], apart, [len(margins)]])[::-1]
        best = int(counts[np.argmax(f1_with[counts])])
        around = np.concatenate([[margins[0] - 2.0], margins, [margins[-1] + 2.0]])
        return float(around[best : best + 2].mean())

    def _columns(self) -> np.ndarray:
        """(4, n) exact match, F1, has an answer, margin."""
        return np.array(self._numbers, np.float64).reshape(-1, 4).T
