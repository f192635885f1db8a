"""Word vectors trained on a corpus: skip-gram, CBOW, with or without character n-grams; `bertkit words train`."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from bertkit.errors import DataError
from bertkit.executor import map_on_cores
from bertkit.tokenizer.tokenizer import refuse_one_text
from bertkit.tokenizer.vocabulary import SpecialTokens, Vocabulary
from bertkit.tokenizer.wordpiece import Normalization, WordPiece
from bertkit.words.encoder import StaticEncoder
from bertkit.words.job import VectorJob, VectorLoop
from bertkit.words.ngrams import NUM_ROWS, units_of
from bertkit.words.opening import of_words
from bertkit.words.settings import WordTraining
from bertkit.words.skip_gram import alias_table, train_sentences
from bertkit.words.tokens import whole_words
from bertkit.words.window_step import WIDTH, scratch

_SENTENCES_AT_A_TIME = 20_000
_WORDS_OF_A_PART = 20_000
_WORDS_AT_A_TIME = 10_000  # whose n-grams are copied at once
_PARTS_AT_A_TIME = 64  # the state is saved between them
_LONGEST_SENTENCE = 10_000
_LAST_RATE = 0.004  # final learning rate as a share of the first


@dataclass(frozen=True)
class WordCorpus:
    """Sentences as word ids, without rare words."""

    words: list[str]  # by descending count
    counts: np.ndarray  # (V,) int64
    ids: np.ndarray  # (num_tokens,) int32
    starts: np.ndarray  # (num_sentences + 1,) int64
    num_rare: int = 0  # words that were left out

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.starts) - 1


def read_corpus(sentences: Iterable[str], min_count: int) -> WordCorpus:
    """Convert sentences to word ids, split and lowercased as in a `StaticEncoder` of words.

    Raises:
        DataError: no word occurs ``min_count`` times.
        UsageError: a str or a table instead of sentences.
    """
    refuse_one_text(sentences)
    splitter = WordPiece(
        Vocabulary(("[UNK]", "[CLS]", "[SEP]"), SpecialTokens()), Normalization(lowercase=True, strip_accents=False)
    )
    counts: Counter[str] = Counter()
    parts: list[list[str]] = []
    for part in _batches(tqdm(sentences, desc="reading sentences", unit=" sentences", delay=2, disable=None)):
        normal = [splitter.normalize(text) for text in part]
        spans = splitter.tokenize(normal)
        assert spans.spans is not None
        for number, text in enumerate(normal):
            rows = spans.spans[spans.cu_seqlens[number] + 1 : spans.cu_seqlens[number + 1] - 1].tolist()
            counts.update(text[start:end] for start, end, _ in rows)
        parts.append(normal)
    longest = splitter.max_characters_per_word  # a longer word is [UNK] in every text
    ordered = sorted(
        (word for word, count in counts.items() if count >= min_count and len(word) <= longest),
        key=lambda one: (-counts[one], one),
    )
    if not ordered:
        raise DataError(f"no word occurs {min_count} times in the texts: give more text, or lower min_count=")
    engine = whole_words(ordered)
    ids, lengths = [], []
    for part in parts:
        inside, texts = engine.ids(part).inside()
        kept = inside < len(ordered)
        ids.append(inside[kept])
        lengths.append(np.bincount(texts[kept], minlength=len(part)))
    all_lengths = np.concatenate(lengths)
    flat, bounds = np.concatenate(ids), np.concatenate([[0], np.cumsum(all_lengths)])
    if all_lengths.max() > _LONGEST_SENTENCE:
        extra = [np.arange(a, b, _LONGEST_SENTENCE) for a, b in pairwise(bounds)]
        bounds = np.concatenate([*extra, bounds[-1:]])
    number = np.array([counts[word] for word in ordered], np.int64)
    num_rare = sum(count < min_count for count in counts.values())
    return WordCorpus(ordered, number, flat.astype(np.int32), bounds.astype(np.int64), num_rare)


def _batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    source = iter(sentences)
    while part := list(islice(source, _SENTENCES_AT_A_TIME)):
        yield part


class _WordLoop(VectorLoop):
    """The loop over the parts of a corpus, of which several are trained at a time."""

    unit: ClassVar[str] = " words"

    def __init__(self, job: "WordVectorTraining") -> None:
        super().__init__(job)
        corpus, settings = job.data, job.settings
        self.corpus, self.units = corpus, units_of(corpus.words, settings.ngrams)
        num_words, dim, random = len(corpus.words), settings.dimensions, np.random.default_rng(settings.seed)
        num_rows = num_words + (NUM_ROWS if settings.ngrams else 0)
        width = -(-dim // WIDTH) * WIDTH  # whole vectors; the rest stays 0
        self.inputs, self.outputs = (np.zeros((number, width), np.float32) for number in (num_rows, num_words))
        self.inputs[:, :dim] = (2 * random.random((num_rows, dim), np.float32) - 1) / np.float32(dim)
        self.seconds = np.zeros(())  # of training
        for name, array in self.saved().items():
            self.arrays()[name][...] = array
        self.network = nn.ParameterList(map(torch.from_numpy, (self.inputs, self.outputs)))
        self.samples = alias_table(corpus.counts.astype(np.float64) ** 0.75)
        self.keep = _keep_probability(corpus.counts, settings.subsample)
        self.edges = _edges(corpus.starts)
        self.num_parts = len(self.edges) - 1
        self.work, self.num_steps = len(corpus.ids) * settings.num_epochs, self.num_parts * settings.num_epochs
        self.longest = int(np.diff(corpus.starts).max())

    def steps(self) -> Iterator[int]:
        start, done = time.monotonic(), self.state.step
        block = range(done, min(done + _PARTS_AT_A_TIME, self.num_steps))
        yield from map_on_cores(self._train_part, block)
        self.state.step = block.stop
        self.seconds += time.monotonic() - start

    def _train_part(self, step: int) -> int:
        """Train one part in one epoch; returns its number of words."""
        corpus, settings, edges = self.corpus, self.settings, self.edges
        epoch, part = divmod(step, self.num_parts)
        share = (epoch * len(corpus.ids) + int(corpus.starts[edges[part]])) / self.work
        rate = settings.learning_rate * (1 - share * (1 - _LAST_RATE))
        is_cbow = settings.method == "cbow"
        num_rows = 1 if is_cbow else min(2 * settings.window, self.longest)
        train_sentences(
            corpus.ids, corpus.starts, edges[part], edges[part + 1], epoch, settings.seed, self.keep, *self.samples,
            settings.window, settings.negatives, is_cbow, rate, *self.units, self.inputs, self.outputs,
            np.empty(self.longest, np.int32), np.empty(1 + settings.negatives, np.int32),
            *scratch(num_rows, 1 + settings.negatives, self.inputs.shape[1]),
        )  # fmt: skip
        return int(corpus.starts[edges[part + 1]] - corpus.starts[edges[part]])

    def arrays(self) -> dict[str, np.ndarray]:
        dim = self.settings.dimensions
        return {"inputs": self.inputs[:, :dim], "outputs": self.outputs[:, :dim], "seconds": self.seconds}

    @property
    def vectors(self) -> np.ndarray:
        return self.inputs[:, : self.settings.dimensions]

    def metrics(self) -> dict[str, float]:
        return {
            "num_words": len(self.corpus.words), "num_tokens": len(self.corpus.ids),
            "words_per_second": self.work / max(float(self.seconds), 1e-9), "seconds": float(self.seconds),
            "num_threads": torch.get_num_threads(),
        }  # fmt: skip

    def encoder(self) -> StaticEncoder:
        return _encoder(self.corpus.words, self.vectors, self.units, self.settings)


@dataclass
class WordVectorTraining(VectorJob):
    """One run of training of word vectors on every core.

    With one thread the vectors are bit-identical in every run, also after a stop and resume. Several threads write to
    the same matrices without locks: the bits differ between runs, the quality does not. A step is a part of the corpus.
    The outcome has the metrics ``num_words`` of the vocabulary, ``num_tokens`` of the corpus (words in the vocabulary),
    ``seconds`` of training, ``words_per_second`` (each epoch counted) and ``num_threads``. ``start`` raises a
    UsageError for a learning rate at which training diverges.
    """

    settings: WordTraining = field(default_factory=WordTraining)
    data: Any = field(default=None, kw_only=True, repr=False)  # a `WordCorpus`

    loop_type: ClassVar[type[VectorLoop]] = _WordLoop
    work: ClassVar[str] = "words train runs"

    @property
    def batch_size(self) -> int:
        return _PARTS_AT_A_TIME

    def digests(self) -> dict[str, str]:
        digest = hashlib.sha256("\n".join(self.data.words).encode())
        digest.update(self.data.ids)
        digest.update(self.data.starts)
        return {"training": digest.hexdigest()}


def _keep_probability(counts: np.ndarray, subsample: float) -> np.ndarray:
    """(V,) float32 probability of keeping an occurrence (``word2vec.c``): (sqrt(share / s) + 1) s / share."""
    if not subsample:
        return np.ones(len(counts), np.float32)
    ratio = counts / counts.sum() / subsample
    return np.minimum((np.sqrt(ratio) + 1) / ratio, 1).astype(np.float32)


def _edges(starts: np.ndarray) -> list[int]:
    """Boundaries of parts of a few thousand words."""
    num_parts = max(1, int(starts[-1]) // _WORDS_OF_A_PART)
    wanted = np.linspace(0, int(starts[-1]), num_parts + 1)
    return sorted({0, len(starts) - 1, *np.searchsorted(starts, wanted[1:-1]).tolist()})


def _encoder(
    words: Sequence[str], inputs: np.ndarray, units: tuple[np.ndarray, np.ndarray], settings: WordTraining
) -> StaticEncoder:
    if not settings.ngrams:
        return of_words(words, inputs)
    starts, rows = units
    means = np.empty((len(words), inputs.shape[1]), np.float32)
    for first in range(0, len(words), _WORDS_AT_A_TIME):
        of = starts[first : first + _WORDS_AT_A_TIME + 1]
        sums = np.add.reduceat(inputs[rows[of[0] : of[-1]]], of[:-1] - of[0], axis=0)
        means[first : first + len(sums)] = sums / np.diff(of)[:, None].astype(np.float32)
    return replace(of_words(words, means), ngrams=np.ascontiguousarray(inputs[len(words) :]))
