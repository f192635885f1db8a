"""Settings of the training of word vectors."""

from dataclasses import dataclass
from typing import Literal

from bertkit.errors import UsageError
from bertkit.tasks.field_types import AboveZero, Count, NotNegative, Seed, check_field_types


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
    dimensions: Count = 100
    window: Count = 5
    min_count: Count = 5
    negatives: Count = 5
    subsample: NotNegative = 1e-3
    epochs: Count = 5
    learning_rate: AboveZero = 0.025
    ngrams: bool = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_field_types(self)


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

    dimensions: Count = 512
    nested: tuple[int, ...] = (512, 256, 128, 64, 32)
    batch_size: int = 1024
    epochs: Count = 1
    learning_rate: AboveZero = 0.05
    temperature: AboveZero = 0.05
    max_length: Count = 256
    seed: Seed = 0

    def __post_init__(self) -> None:
        if isinstance(self.nested, list):
            object.__setattr__(self, "nested", tuple(self.nested))
        check_field_types(self)
        if self.batch_size < 2:
            raise UsageError(f"batch_size={self.batch_size}: expected at least 2, as the other rows are negatives")
        if any(width < 1 for width in self.nested) or len(set(self.nested)) < len(self.nested):
            raise UsageError(f"nested={list(self.nested)}: expected different widths of at least 1")
