"""Settings of the training of word vectors."""

from dataclasses import dataclass
from typing import Literal

from bertkit.errors import UsageError, check_above_zero
from bertkit.tasks.field_types import check_field_types


@dataclass(frozen=True)
class WordTraining:
    """Settings of word vector training; the defaults are word2vec's and gensim's.

    Parameters
    ----------
    method
        skip-gram predicts the words around a word, cbow a word from those around it.
    dimensions
        Components of a vector.
    window
        Maximum words on each side; drawn for each word from 1 to this.
    min_count
        Words that occur less often are skipped.
    negatives
        Negative samples per word.
    subsample
        Words more frequent than this share are dropped at random; 0: none.
    epochs
        Passes over the texts.
    learning_rate
        Initial learning rate; falls linearly to 1/250 of it.
    ngrams
        Also train character n-grams of 3 to 6, so that unknown words have vectors.
    seed
        Seed of initial vectors and samples.
    """

    method: Literal["skip-gram", "cbow"] = "skip-gram"
    dimensions: int = 100
    window: int = 5
    min_count: int = 5
    negatives: int = 5
    subsample: float = 1e-3
    epochs: int = 5
    learning_rate: float = 0.025
    ngrams: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_field_types(self)
        _check_counts(self, "dimensions", "window", "min_count", "negatives", "epochs")
        check_above_zero(self, "learning_rate")
        if self.subsample < 0:
            raise UsageError(f"subsample={self.subsample}: expected a number of at least 0")
        _check_seed(self.seed)


@dataclass(frozen=True)
class PairTraining:
    """Settings for training a static encoder on pairs.

    Parameters
    ----------
    dimensions
        Components of a vector.
    nested
        Widths of truncated vectors that are trained too; those too large are ignored.
    batch_size
        Rows of a batch; the texts of other rows are negatives.
    epochs
        Passes over the rows.
    learning_rate
        Peak learning rate of Adam; falls linearly to 0 after a tenth of the steps.
    temperature
        Divisor of the cosines.
    max_length
        Maximum tokens of a text.
    seed
        Seed of initial vectors and the order of rows.
    """

    dimensions: int = 512
    nested: tuple[int, ...] = (512, 256, 128, 64, 32)
    batch_size: int = 1024
    epochs: int = 1
    learning_rate: float = 0.05
    temperature: float = 0.05
    max_length: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.nested, list):
            object.__setattr__(self, "nested", tuple(self.nested))
        check_field_types(self)
        _check_counts(self, "dimensions", "epochs", "max_length")
        if self.batch_size < 2:
            raise UsageError(f"batch_size={self.batch_size}: expected at least 2, as the other rows are negatives")
        if any(width < 1 for width in self.nested) or len(set(self.nested)) < len(self.nested):
            raise UsageError(f"nested={list(self.nested)}: expected different widths of at least 1")
        check_above_zero(self, "learning_rate", "temperature")
        _check_seed(self.seed)


def _check_counts(settings: WordTraining | PairTraining, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < 1:
            raise UsageError(f"{name}={getattr(settings, name)}: expected at least 1")


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise UsageError(f"seed={seed}: expected an integer from 0 to below 2**63")
