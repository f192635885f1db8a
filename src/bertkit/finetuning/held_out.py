"""Training rows that are held out to compare runs, where there are no dev examples."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

_HELD_OUT, _MOST_HELD_OUT, _FEWEST_HELD_OUT = 0.2, 2_000, 20  # share and number of training rows
_FEWEST_OF_A_NAME = 2  # classification refuses a label with a single row


def held_out(train: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Split training rows into rows to train on and rows held out to compare runs.

    The rows to train on include at least two rows of each label and of each tag, or all of them if there are fewer. No
    row is held out if a fifth of all rows is less than 20.
    """
    number = min(_MOST_HELD_OUT, round(_HELD_OUT * len(train)))
    if number < _FEWEST_HELD_OUT:
        return list(train), []
    order = np.random.default_rng(0).permutation(len(train)).tolist()
    names = [_names(one) for one in train]
    num_kept = Counter(name for index in order[number:] for name in names[index])
    chosen = {index for index in order[:number] if all(num_kept[name] >= _FEWEST_OF_A_NAME for name in names[index])}
    kept = [one for index, one in enumerate(train) if index not in chosen]
    return kept, [train[index] for index in sorted(chosen)]


def _names(example: Any) -> set[str]:
    """Label names or tags of an example."""
    label = getattr(example, "label", None)
    labels = label if isinstance(label, tuple) else (label,) if isinstance(label, str) else ()
    return {*labels, *(getattr(example, "tags", None) or ())}
