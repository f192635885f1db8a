"""Tagging estimator for words. Shape letters: C labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from bertkit.estimators.estimator import TextEstimator, check_lengths, items_of, list_of
from bertkit.inference import InferenceReport
from bertkit.tasks import TextTask, TokenClassification
from bertkit.tasks.tagged_texts import tagged_text
from bertkit.tasks.words import Words
from bertkit.tokenizer import Encodings


class TokenClassifier(TextEstimator):
    """Labels of words: entities, or plain labels such as parts of speech.

    X are lists of words, and y lists of their tags; or X are texts, and y lists of their entities as
    (start, end, label), in characters. Parameters are those of `TextEstimator` with ``class_weights``, None,
    "balanced", or a weight for each tag, ``label_smoothing``, ``words``, "punctuation" or "spaces", ``snap_spans`` and
    ``scheme``.
    """

    _task: ClassVar[type[TextTask]] = TokenClassification

    def _example(self, item: Any, label: Any, location: str, words: Words | None = None) -> Any:
        parameters: Any = self
        rule = words or parameters.words or "punctuation"
        return tagged_text(item, label, location, words=rule, snap_spans=parameters.snap_spans)

    def predict(self, X: Any) -> list[list[Any]]:
        """Tags for lists of words; for texts (start, end, label) of each entity, or of each word with plain labels."""
        pairs = zip(items_of(X), self._predictions(X), strict=True)
        return [self._spans(one) if isinstance(item, str) else list(one.labels) for item, one in pairs]

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """For each text (words, C) float64, the probability of each label of ``classes_``.

        A word that was cut, or without a token, has its label with probability 1: O, or the first plain label.
        """
        task = self._trained_task

        def decode(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[np.ndarray]:
            words = [one.words for one in task.decode(examples, encodings, logits)]
            scores, _ = task.word_scores(examples, encodings, logits)
            return np.split(np.exp(scores), np.cumsum([len(of_text) for of_text in words])[:-1])

        parts = self.model_.predict_stream(items_of(X), report=InferenceReport(), decode=decode)
        return [results for _, of_part in parts for results in of_part]

    def score(self, X: Any, y: Any) -> float:
        """Entity F1, or accuracy for plain labels. A tag that was not in training counts as a wrong prediction."""
        items, labels, task = items_of(X), list_of(y), self._trained_task
        check_lengths(items, labels)
        examples = [
            self._example(item, label, f"text {index}", task.words)
            for index, (item, label) in enumerate(zip(items, labels, strict=True))
        ]
        strange = {tag for example in examples for tag in example.tags or ()} - {*task.label_names}
        task = replace(task, label_names=(*task.label_names, *sorted(strange)), class_weights=())
        return self._metrics(examples, task)[task.best_by]

    @property
    def classes_(self) -> np.ndarray:
        """(C,) the labels, in the order of ``predict_proba``."""
        return np.array(self._trained_task.label_names)

    def _spans(self, prediction: Any) -> list[tuple[int, int, str]]:
        if self._trained_task.scheme == "plain":
            return [(*span, label) for span, label in zip(prediction.words, prediction.labels, strict=True)]
        return [(entity.start, entity.end, entity.label) for entity in prediction.entities]
