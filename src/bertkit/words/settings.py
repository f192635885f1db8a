"""Settings of the training of word vectors."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bertkit.tasks.field_types import AboveZero, Count, NotNegative, Range, Seed, Widths
from bertkit.tasks.settings import Settings

_OTHER_ROWS = Range("an integer of at least 2, as the other rows are negatives", lambda value: value >= 2)


@dataclass(frozen=True)
class WordTraining(Settings):
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
    num_epochs
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
    num_epochs: Count = 5
    learning_rate: AboveZero = 0.025
    ngrams: bool = False
    seed: Seed = 0


@dataclass(frozen=True)
class PairTraining(Settings):
    """Settings for training a static encoder on pairs.

    Parameters
    ----------
    dimensions
        Components of a vector.
    nested
        Widths of truncated vectors that are trained too; those too large are ignored.
    batch_size
        Rows of a batch; the texts of other rows are negatives.
    num_epochs
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
    nested: Widths = (512, 256, 128, 64, 32)
    batch_size: Annotated[int, _OTHER_ROWS] = 1024
    num_epochs: Count = 1
    learning_rate: AboveZero = 0.05
    temperature: AboveZero = 0.05
    max_length: Count = 256
    seed: Seed = 0
