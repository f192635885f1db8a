"""Settings of the training of word vectors."""

from dataclasses import dataclass
from typing import Literal

from bertkit.errors import UsageError


@dataclass(frozen=True)
class WordTraining:
    """Settings of word vector training; the defaults are word2vec's and gensim's."""

    method: Literal["skip-gram", "cbow"] = "skip-gram"
    dimensions: int = 100  # components of a vector
    window: int = 5  # maximum words on each side; drawn for each word from 1 to this
    min_count: int = 5  # rarer words are skipped
    negatives: int = 5  # negative samples per word
    subsample: float = 1e-3  # words more frequent than this share are dropped at random; 0: none
    epochs: int = 5
    learning_rate: float = 0.025  # falls linearly to 1/250 of it
    ngrams: bool = False  # character n-grams of 3 to 6, so that unknown words have vectors
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in ("skip-gram", "cbow"):
            raise UsageError(f"method={self.method!r}: expected 'skip-gram' or 'cbow'")
        for name in ("dimensions", "window", "min_count", "negatives", "epochs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: expected at least 1")
        if not (self.learning_rate > 0 and self.subsample >= 0):
            raise UsageError(
                f"learning_rate={self.learning_rate}, subsample={self.subsample}: expected more than 0, at least 0"
            )


@dataclass(frozen=True)
class PairTraining:
    """Settings for training a static encoder on pairs."""

    dimensions: int = 512  # components of a vector
    nested: tuple[int, ...] = (512, 256, 128, 64, 32)  # widths of truncated vectors; those too large are ignored
    batch_size: int = 1024  # rows; the texts of other rows are negatives
    epochs: int = 1
    learning_rate: float = 0.05  # of Adam, falls linearly to 0 after a tenth of the steps
    temperature: float = 0.05
    max_length: int = 256  # tokens of a text
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("dimensions", "batch_size", "epochs", "max_length"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: expected at least 1")
