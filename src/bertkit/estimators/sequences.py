"""Classification and regression estimators for texts and pairs of texts. Shape letters: N texts, C classes."""

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from bertkit.errors import CheckpointError, DataError, UsageError
from bertkit.estimators.estimator import TextEstimator, check_lengths, items_of, list_of
from bertkit.files.json_files import member
from bertkit.tasks import (
    FewShotClassification,
    MultiLabelClassification,
    Regression,
    SequenceClassification,
    TextExample,
    TextTask,
)
from bertkit.tasks.reading.labels import ways_of_nothing
from bertkit.tasks.texts import OfTexts, names_of


class SequenceClassifier(ClassifierMixin, TextEstimator):
    """Classifier of texts and pairs of texts; with an (N, C) array ``y`` of 0 and 1, multi-label.

    Parameters are those of `TextEstimator` with ``class_weights``, None, "balanced", or a weight for each class, and
    ``label_smoothing``.

    Attributes:
        classes_: (C,) the classes, in the order of ``predict_proba``.
    """

    _task: ClassVar[type[OfTexts]] = SequenceClassification  # for one class per text
    _task_of_several: ClassVar[type[OfTexts] | None] = MultiLabelClassification  # for several classes per text

    def fit(self, X: Any, y: Any, *, dev: tuple[Any, Any] | None = None) -> Self:
        """Fine-tune the model.

        Args:
            X: texts, or pairs of texts.
            y: (N,) or (N, 1) classes, or (N, C) 0 and 1.
            dev: held-out texts and classes, which select the best weights; None: the last weights are kept.

        Raises:
            UsageError: different lengths, or an invalid parameter.
            DataError: an invalid label; fewer than two classes, or a class with a single text.
        """
        labels = _labels_of(y)
        has_several = bool(labels) and isinstance(labels[0], list | tuple)
        task = self._task_of_several if has_several else self._task
        if task is None:
            raise UsageError(f"{self._task.name} requires one class per text: expected labels of shape (n,)")
        _check_labels(labels, len(labels[0]) if has_several else None)
        kinds = sorted({type(label).__name__ for label in labels})
        if len(kinds) > 1 and not any(isinstance(label, str) for label in labels) and not has_several:
            raise DataError(f"the labels mix {' and '.join(kinds)}: convert them to one type")
        classes = np.unique(np.asarray(labels))
        if has_several:  # the columns of a table have names
            classes = np.asarray(list(getattr(y, "columns", range(len(labels[0])))))
        train = self._labeled(X, labels, classes, has_several)
        options = self._task_options()
        if isinstance(options.get("class_weights"), Mapping):
            options["class_weights"] = {str(name): weight for name, weight in options["class_weights"].items()}
        missing = {str(name) for name in classes.tolist()} - names_of(train).keys()
        if missing:
            raise UsageError(f"no text has the class {', '.join(sorted(missing))}: remove its column")
        self._train(task.name, train, [] if dev is None else self._labeled(*dev, classes, has_several), options)
        known = self._trained_task.label_names  # without those whose texts were skipped
        self.classes_ = classes[[str(name) in known for name in classes.tolist()]]
        self._has_several = has_several  # as in the model, also if a later fit fails
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(N,) the likeliest classes, or (N, C) 0 and 1."""
        predictions = self._predictions(X)
        if self._has_several:
            names = [str(name) for name in self.classes_.tolist()]
            return np.array([[int(name in one.labels) for name in names] for one in predictions]).reshape(
                -1, len(names)
            )
        indices = {str(name): index for index, name in enumerate(self.classes_.tolist())}
        return self.classes_[[indices[one.likeliest] for one in predictions]]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy; white space around classes is ignored."""
        return super().score(X, y if hasattr(y, "columns") else _labels_of(y), sample_weight)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, C) float64, the probability of each class."""
        names = [str(name) for name in self.classes_.tolist()]
        probabilities = [[one.probabilities[name] for name in names] for one in self._predictions(X)]
        return np.array(probabilities, np.float64).reshape(-1, len(names))

    def _labeled(self, X: Any, y: Any, classes: np.ndarray, has_several: bool) -> list[TextExample]:
        """The examples of texts with their classes."""
        items, labels = items_of(X), _labels_of(y)
        check_lengths(items, labels)
        names = classes.tolist()
        _check_labels(labels, len(names) if has_several else None)
        return [
            self._task.example(
                item,
                tuple(str(name) for name, has in zip(names, label, strict=True) if has) if has_several else str(label),
                location=f"text {number}",
            )
            for number, (item, label) in enumerate(zip(items, labels, strict=True))
        ]

    def _facts(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist()}

    def _take_facts(self, record: Mapping[str, Any], path: Path) -> None:
        task = self.model_.trained.task
        known = [kind for kind in (self._task, self._task_of_several) if kind is not None]
        if not isinstance(task, tuple(known)):
            names = " or ".join(kind.name for kind in known)
            raise CheckpointError(f"{path.parent} holds a model for {task.name}: {type(self).__name__} is for {names}")
        self._has_several = not isinstance(task, self._task)
        names = task.label_names or ()
        classes = member(dict(record), "classes", list, path, list(names))
        if {str(name) for name in classes} != set(names):
            raise CheckpointError(f"{path}: its classes differ from those of the model, {', '.join(names)}")
        self.classes_ = np.array(classes)


class FewShotClassifier(SequenceClassifier):
    """Few-shot classifier of texts and pairs of texts, with (N,) classes and few texts per class, such as eight.

    First the encoder learns vectors that separate the classes, then a linear layer is fitted to them
    (`FewShotClassification`). Best with a sentence encoder. Parameters are those of `TextEstimator`.
    """

    _task: ClassVar[type[OfTexts]] = FewShotClassification
    _task_of_several: ClassVar[type[OfTexts] | None] = None


class SequenceRegressor(RegressorMixin, TextEstimator):
    """Regression over texts and pairs of texts.

    X are texts or pairs of texts, y (N,) or (N, 1) numbers in any unit. Parameters are those of `TextEstimator`.
    """

    _task: ClassVar[type[TextTask]] = Regression

    def predict(self, X: Any) -> np.ndarray:
        """(N,) float64."""
        return np.array([one.score for one in self._predictions(X)], np.float64)

    def _examples(self, X: Any, y: Any) -> list[TextExample]:
        return super()._examples(X, _labels_of(y))


def _labels_of(y: Any) -> list[Any]:
    """Labels as Python values, names without white space around them; a single column, such as a table with one, as the
    values in it."""
    labels = [label.strip() if isinstance(label, str) else label for label in list_of(y)]
    is_column = all(isinstance(label, list | tuple) and len(label) == 1 for label in labels)
    return [label[0] for label in labels] if is_column else labels


def _check_labels(labels: Sequence[Any], num_classes: int | None) -> None:
    """Check that each label is a class, or, with ``num_classes``, a row of that many 0 and 1.

    Raises:
        DataError: an invalid label.
    """
    nothing = set() if num_classes else ways_of_nothing(label for label in labels if isinstance(label, str | int))
    for index, label in enumerate(labels):
        if num_classes is None:
            if not isinstance(label, str | Real | np.bool_) or label != label:
                raise DataError(
                    f"text {index}: its label is {label!r:.60}: expected a str or a number; correct it, or remove the "
                    "text"
                )
            if str(label) in nothing:
                raise DataError(
                    f"text {index}: its label is {label!r}, which means no label: correct it, or remove the text"
                )
        elif not (isinstance(label, list | tuple) and len(label) == num_classes and all(map(_is_decided, label))):
            raise DataError(
                f"text {index}: its labels are {label!r:.60}: expected {num_classes} numbers, 1 for each class of the "
                "text and 0 for the others; scikit-learn's MultiLabelBinarizer makes them from names"
            )


def _is_decided(value: Any) -> bool:
    return isinstance(value, Real | np.bool_) and value in (0, 1)
