"""Interfaces of scorers: metrics of predictions."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


class Scorer(Protocol):
    """Accumulated metrics of examples."""

    def add(self, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
        """Add predictions of labeled examples, in the same order.

        Raises:
            DataError: an example without a label, or with a label unknown to the task.
        """

    def results(self) -> dict[str, float]:
        """Metrics of all added examples, by name; those that can select weights are in `METRICS`."""


@runtime_checkable
class RowScorer(Scorer, Protocol):
    """A `Scorer` that knows the value of each example."""

    def values(self) -> dict[str, list[float]]:
        """Metrics that are means over examples, with the value of each example; {} for scored pairs."""
