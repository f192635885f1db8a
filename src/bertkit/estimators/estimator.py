"""Base class of the estimators: parameters, fine-tuning in ``fit``, directories, pickles."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bertkit.advice import spelled_alike
from bertkit.errors import CheckpointError, UsageError, checked_path, warn
from bertkit.files import skipped_lines
from bertkit.files.json_files import member, read_json, write_json
from bertkit.files.whole_files import whole_folder
from bertkit.finetuning import Finetuning, FinetuningSettings, start_run
from bertkit.model import Model, load
from bertkit.tasks import TextTask

_SETTINGS = FinetuningSettings().all_values()
_RECORD = "estimator.json"


class TextEstimator(BaseEstimator):
    """Base class of estimators that fine-tune a published model.

    Args:
        model: a folder, a hub name, or the import name of an installed model package.
        device: "auto", "cpu", "cuda".
        skip_bad: skip items that cannot be used or are too long, with a warning; else they are errors.
        settings: settings of `FinetuningSettings`, and options of the task: each is a parameter of the estimator,
            for ``set_params`` and grid search.

    Attributes:
        model_: the trained `Model`.
        outcome_: the `Outcome` of ``fit``: with dev examples their metrics, and the metrics reached without
            fine-tuning. Kept by pickles, not by ``save``.
    """

    _task: ClassVar[type[TextTask]]

    def __init__(self, model: str | Path, *, device: str = "auto", skip_bad: bool = False, **settings: Any) -> None:
        known = {**_SETTINGS, **self._options()}
        for name in settings:
            if name not in known:
                raise UsageError(f"{type(self).__name__} has no parameter {name!r}: expected any of {', '.join(known)}")
        self.model, self.device, self.skip_bad = model, device, skip_bad
        for name, value in (known | settings).items():
            setattr(self, name, value)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted({"model", "device", "skip_bad", *_SETTINGS, *cls._options()})

    @classmethod
    def _options(cls) -> dict[str, Any]:
        """Options of the task, with their defaults."""
        return {name: option.default for name, option in cls._task.options.items()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore
        tags.input_tags.string, tags.input_tags.one_d_array = True, True
        return tags

    def fit(self, X: Any, y: Any, *, dev: tuple[Any, Any] | None = None) -> Self:
        """Fine-tune the model.

        Args:
            X, y: items and labels, as described in the class.
            dev: held-out items and labels, which select the best weights; None: the last weights are kept.

        Raises:
            UsageError: different lengths, or an invalid parameter.
            DataError: unusable labels.
        """
        train = self._examples(X, y)
        self._train(self._task.name, train, [] if dev is None else self._examples(*dev), self._task_options())
        return self

    def _train(self, task: str, train: Sequence[Any], dev: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Set ``model_``; the files of the run are removed."""
        given = {name: _plain(getattr(self, name)) for name in _SETTINGS}
        settings = FinetuningSettings.of(**{name: one for name, one in given.items() if one != _SETTINGS[name]})
        with tempfile.TemporaryDirectory(prefix="bertkit-") as folder:
            run = Finetuning(
                Path(folder) / "model", self.model, task, settings, options,
                device=self.device, log_line=lambda line: None, resumable=False, skip_bad=self.skip_bad,
            )  # fmt: skip
            self.outcome_ = start_run(run, train, dev)
            self.model_ = load(run.out, device=self.device)
        if run.skipped:
            warn(" ".join(skipped_lines(run.skipped)))
        if sentence := spelled_alike(self._trained_task.known_labels or ()):
            warn(sentence)

    def _task_options(self) -> dict[str, Any]:
        """Options that were set."""
        options = {name: (_plain(getattr(self, name)), absent) for name, absent in self._options().items()}
        return {name: value for name, (value, absent) in options.items() if value != absent}

    def _examples(self, X: Any, y: Any) -> list[Any]:
        items, labels = items_of(X), list_of(y)
        check_lengths(items, labels)
        return [
            self._example(item, label, f"text {index}")
            for index, (item, label) in enumerate(zip(items, labels, strict=True))
        ]

    def _example(self, item: Any, label: Any, location: str) -> Any:
        return self._task.example(item, label, location)

    def _predictions(self, X: Any) -> list[Any]:
        check_is_fitted(self, "model_")
        return self.model_.predict(items_of(X))

    def _metrics(self, examples: Sequence[Any], task: TextTask) -> dict[str, float]:
        """Metrics of the model's predictions, with the labels of ``task``."""
        scorer = task.scorer()
        scorer.add(examples, self._predictions(examples))
        return scorer.results()

    @property
    def _trained_task(self) -> Any:
        check_is_fitted(self, "model_")
        return self.model_.trained.task

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Save the trained model as a directory that every part of bertkit can open; atomically.

        Raises:
            UsageError: the directory exists and is not empty, unless ``overwrite``.
        """
        check_is_fitted(self, "model_")
        with whole_folder(directory, overwrite=overwrite) as folder:
            self.model_.save(folder)
            parameters = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
            content = {"parameters": parameters | {"model": str(self.model)}, **self._facts()}
            write_json(folder / _RECORD, {"estimator": type(self).__name__, **content})

    @classmethod
    def load(cls, directory: str | Path, *, device: str = "auto") -> Self:
        """Load an estimator from a directory of `save` or ``bertkit finetune``.

        Raises:
            CheckpointError: no such directory, or another kind of estimator.
        """
        path = checked_path("the directory", directory) / _RECORD
        record, model = read_json(path) or {}, load(directory, device=device)
        kind = member(record, "estimator", str, path, cls.__name__)
        if kind != cls.__name__:
            raise CheckpointError(f"{directory} holds a {kind}: open it with {kind}.load")
        parameters = member(record, "parameters", dict, path, {})
        is_tuple = {name for name, default in _SETTINGS.items() if isinstance(default, tuple)}  # a list in JSON
        parameters |= {name: tuple(parameters[name]) for name in is_tuple & parameters.keys()}
        try:
            estimator = cls(**({"model": str(directory)} | parameters | {"device": device}))
        except UsageError as error:
            raise CheckpointError(f"{path}: {error}") from None
        estimator.model_ = model
        estimator._take_facts(record, path)
        return estimator

    def _facts(self) -> dict[str, Any]:
        """Further fitted attributes, as JSON."""
        return {}

    def _take_facts(self, record: Mapping[str, Any], path: Path) -> None:
        """Restore fitted attributes from `_facts`, or from a directory without them.

        Raises:
            CheckpointError: the directory's task is not this estimator's.
        """
        task = self.model_.trained.task
        if not isinstance(task, self._task):
            kind = type(self).__name__
            raise CheckpointError(f"{path.parent} holds a model for {task.name}: {kind} is for {self._task.name}")

    def __getstate__(self) -> dict[str, Any]:
        """The state, with the files of the model's directory instead of the model."""
        state = dict(super().__getstate__())
        model: Model | None = state.pop("model_", None)
        if model is not None:
            with tempfile.TemporaryDirectory(prefix="bertkit-") as folder:
                model.save(folder)
                files = [path for path in Path(folder).rglob("*") if path.is_file()]
                state["_files"] = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files: dict[str, bytes] | None = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            with tempfile.TemporaryDirectory(prefix="bertkit-") as folder:
                for name, content in files.items():
                    (Path(folder) / name).parent.mkdir(exist_ok=True)
                    (Path(folder) / name).write_bytes(content)
                self.model_ = load(folder, device=self.device)


def items_of(X: Any) -> list[Any]:
    """Texts, or pairs of texts, from a list, an array of one or two columns, or a pandas table.

    Raises:
        UsageError: something else.
    """
    if isinstance(X, str):
        raise UsageError("expected a list of texts, got a str: put it in a list")
    is_arrow = hasattr(X, "to_pylist")  # its texts are not str
    values = X.to_pylist() if is_arrow else X.to_numpy() if hasattr(X, "to_numpy") else X
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise UsageError(f"texts are {type(X).__name__} ({X!r:.60}): expected a list or an array")
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[-1] == 1:
            values = values[:, 0]
        if values.ndim not in (1, 2) or (values.ndim == 2 and values.shape[-1] != 2):
            raise UsageError(f"texts have shape {values.shape}: expected (n,), or (n, 2) for pairs")
        values = values.tolist()
    return [tuple(value) if isinstance(value, list) else value for value in values]


def check_lengths(items: Sequence[Any], labels: Sequence[Any]) -> None:
    """Check that every item has its label.

    Raises:
        UsageError: different numbers of items and labels, or none.
    """
    if len(items) != len(labels) or not items:
        raise UsageError(f"{len(items)} texts and {len(labels)} labels: expected one label for each text")


def list_of(y: Any) -> list[Any]:
    """Labels from a list, an array, or a pandas column, as Python values."""
    values = y.to_numpy() if hasattr(y, "to_numpy") else y
    return [_plain(value) for value in _iterable(values.tolist() if isinstance(values, np.ndarray) else values)]


def _plain(value: Any) -> Any:
    """A value of numpy as one of Python, also in a table such as ``class_weights``."""
    if isinstance(value, Mapping):
        return {_plain(name): _plain(one) for name, one in value.items()}
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _iterable(values: Any) -> Iterable[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError(f"labels are {values!r:.60}: expected a list or an array")
    return values
