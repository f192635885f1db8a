"""Classifiers that learn from few texts of each class, compared: one file for each, all with the same faces.

Each module here has a class ``Classifier(threads)``; calling it with the name of a method calls that:

    learn     (texts, labels, seed, settings): from a published sentence encoder
    warm_up   (texts, labels, settings): the same in small
    predict   (texts) -> the labels
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    module: str  # file of this folder
    settings: dict[str, Any]  # what ``learn`` is told


SYSTEMS = (
    System("frozen", "setfit", {"iterations": 0}),
    System("setfit", "setfit", {"iterations": 20}),
    System("bertkit", "bertkit", {}),
    System("bertkit-bf16", "bertkit", {"precision": "bfloat16"}),
)
