"""Several labels of a sequence, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LabelColumns:
    """Arrays or tensors of labels as attributes, each with a row for every sequence."""

    def __init__(self, **columns: Any) -> None:
        vars(self).update(columns)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no column {name}: the labels have {', '.join(vars(self))}")

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self, rows: Any) -> LabelColumns:
        """The labels of some sequences."""
        return self.changed(lambda column: column[rows])

    def changed(self, change: Callable[[Any], Any]) -> LabelColumns:
        """The labels with each column changed."""
        return LabelColumns(**{name: change(column) for name, column in vars(self).items()})


def change_labels(labels: Any, change: Callable[[Any], Any]) -> Any:
    """Labels changed by a function of an array or a tensor: each column of `LabelColumns`, else the labels."""
    return labels.changed(change) if isinstance(labels, LabelColumns) else change(labels)
