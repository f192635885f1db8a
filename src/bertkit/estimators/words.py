"""Tagger of words. Shape letters: N texts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from bertkit.estimators.estimator import TextEstimator, items_of
from bertkit.tasks import TextTask, TokenClassification


class TokenClassifier(TextEstimator):
    """Which label has each word of a text: entities, or plain labels such as parts of speech.

    X are lists of words, and y for each a list of tags; or X are texts, and y for each a list of its entities as
    (start, end, label), characters of the text. Parameters are those of `TextEstimator` with ``class_weights``, None,
    "balanced", or a weight for each tag, and ``label_smoothing``.
    """

    _task: ClassVar[type[TextTask]] = TokenClassification
    _options: ClassVar[Mapping[str, Any]] = {"class_weights": None, "label_smoothing": 0.0}

    def predict(self, X: Any) -> list[list[Any]]:
        """For a list of words its tags; for a text its entities, of plain labels its words, as (start, end, label)."""
        found = zip(items_of(X), self._predictions(X), strict=True)
        return [self._spans(one) if isinstance(item, str) else list(one.labels) for item, one in found]

    def score(self, X: Any, y: Any) -> float:
        """The F1 of entities, of plain labels the accuracy. A tag that was never learned is one that was not found."""
        examples, task = self._examples(X, y), self._trained_task
        strange = {tag for example in examples for tag in example.tags or ()} - {*task.label_names}
        task = replace(task, label_names=(*task.label_names, *sorted(strange)), class_weights=())
        return self._metrics(examples, task)[task.best_by]

    def _spans(self, found: Any) -> list[tuple[int, int, str]]:
        if self._trained_task.scheme == "plain":
            return [(*span, label) for span, label in zip(found.words, found.labels, strict=True)]
        return [(entity.start, entity.end, entity.label) for entity in found.entities]
