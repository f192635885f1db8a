"""Few-shot classifiers, one file for each, all with the same interface.

Each module here has a class ``Classifier(threads)``; an object called with the name of a method calls that method:

    learn     (texts, labels, seed, settings): train, from a published sentence encoder
    warm_up   (texts, labels, settings): the same with few texts
    predict   (texts) -> the labels
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    module: str  # file of this folder
    settings: dict[str, Any]  # the last argument of ``learn``


SYSTEMS = (
    System("frozen", "setfit", {"iterations": 0}),
    System("setfit", "setfit", {"iterations": 20}),
    System("bertkit", "bertkit", {}),
    System("bertkit-bf16", "bertkit", {"precision": "bfloat16"}),
)
