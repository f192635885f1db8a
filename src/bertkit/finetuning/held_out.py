"""Training rows that are held out to compare runs, where there are no dev examples."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.tasks import task_kind

_HELD_OUT, _MOST_HELD_OUT, _FEWEST_HELD_OUT = 0.2, 2_000, 20  # share and number of training rows


def held_out(task: str, train: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Split training rows into rows to train on, with at least two of each label, and rows held out to compare runs.

    No row is held out if there would be fewer than 20.
    """
    number = min(_MOST_HELD_OUT, round(_HELD_OUT * len(train)))
    if number < _FEWEST_HELD_OUT:
        return list(train), []
    order = np.random.default_rng(0).permutation(len(train)).tolist()
    chosen = set(order[:number])
    kind = task_kind(task)
    while True:  # a label with a single row would be rejected
        kept = [one for index, one in enumerate(train) if index not in chosen]
        alone = {_names(one) for one, _ in kind.unusable_examples(kept)}
        known = {name for one in kept for name in _names(one)}
        back = {
            index
            for index in chosen
            if _names(train[index]) in alone or any(name not in known for name in _names(train[index]))
        }
        if not back:
            return kept, [train[index] for index in sorted(chosen)]
        chosen -= back


def _names(example: Any) -> tuple[Any, ...]:
    """Label names of an example."""
    label = getattr(example, "label", None)
    if isinstance(label, str):
        return (label,)
    return label if isinstance(label, tuple) else ()
