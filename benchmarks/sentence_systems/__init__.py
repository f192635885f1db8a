"""What trains and ranks sentences, compared: one file for each library, both with the same faces.

Each module here has a class ``System(threads)``; calling it with the name of a method calls that:

    train   (model, data, settings) -> Trained: seconds of training, and the vectors of the texts of the test
    rank    (model, precision, query, texts, rounds) -> Ranked: seconds of each round, and the scores
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


class ByName:
    """``system("train", ...)`` for ``system.train(...)``: what another process can ask for."""

    def __call__(self, method: str, *arguments: Any) -> Any:
        return getattr(self, method)(*arguments)


@dataclass(frozen=True)
class Settings:
    """The same for both; the length limit is that of the model."""

    objective: str  # cosent, softmax or in-batch
    precision: str = "float32"
    seed: int = 0
    batch_size: int = 32
    learning_rate: float = 2e-5
    num_epochs: int = 1
    no_duplicates: bool = False  # their sampler


@dataclass(frozen=True)
class Data:
    """Training rows, (text, text, score or label or None), and the texts to embed afterwards."""

    rows: list[tuple[str, str, Any]]
    texts: list[str]


@dataclass(frozen=True, eq=False)
class Trained:
    seconds: float
    vectors: np.ndarray


@dataclass(frozen=True, eq=False)
class Ranked:
    seconds: list[float]
    scores: np.ndarray
