"""Word vectors trained on a corpus: skip-gram, CBOW, with or without character n-grams; `bertkit words train`."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from bertkit.errors import DataError
from bertkit.executor import map_on_cores
from bertkit.tokenizer.tokenizer import refuse_one_text
from bertkit.tokenizer.vocabulary import SpecialTokens, Vocabulary
from bertkit.tokenizer.wordpiece import Normalization, WordPiece
from bertkit.words.encoder import StaticEncoder
from bertkit.words.finite import check_trained
from bertkit.words.ngrams import NUM_ROWS, units_of
from bertkit.words.opening import of_words
from bertkit.words.settings import WordTraining
from bertkit.words.skip_gram import alias_table, train_sentences
from bertkit.words.state_file import SAVE_SECONDS, StateFile, fingerprint_of
from bertkit.words.tokens import whole_words
from bertkit.words.window_step import WIDTH, scratch

_SENTENCES_AT_A_TIME = 20_000
_WORDS_OF_A_PART = 20_000
_WORDS_AT_A_TIME = 10_000  # whose n-grams are copied at once
_PARTS_AT_A_TIME = 64  # the state is saved between them
_LONGEST_SENTENCE = 10_000
_LAST_RATE = 0.004  # final learning rate as a share of the first


class WordCorpus(NamedTuple):
    """Sentences as word ids, without rare words."""

    words: list[str]  # by descending count
    counts: np.ndarray  # (V,) int64
    ids: np.ndarray  # (num_tokens,) int32
    starts: np.ndarray  # (num_sentences + 1,) int64


class TrainingReport(NamedTuple):
    """Result of training."""

    reason: str  # "finished", or "stopped": asked to stop before the end
    num_words: int  # of the vocabulary
    num_tokens: int  # of the corpus, of words in the vocabulary
    words_per_second: float  # trained tokens of the corpus, each epoch counted, divided by the training time
    seconds: float
    num_threads: int


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
        raise DataError(f"no word occurs {min_count} times in the texts: give more text, or a smaller min_count")
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
    return WordCorpus(ordered, number, flat.astype(np.int32), bounds.astype(np.int64))


def _batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    source = iter(sentences)
    while part := list(islice(source, _SENTENCES_AT_A_TIME)):
        yield part


def train_words(
    corpus: WordCorpus,
    settings: WordTraining,
    state: Path | None = None,
    progress: bool | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[StaticEncoder, TrainingReport]:
    """Train word vectors on every core, to the end or until ``should_stop``.

    With one thread the vectors are bit-identical in every run, also after a stop and resume. Several threads write to
    the same matrices without locks: the bits differ between runs, the quality does not.

    Args:
        state: a file written once a minute and at a stop, from which an interrupted run resumes; remove it once the
            encoder is saved.
        progress: show a bar; None: on a terminal.
        should_stop: called every million words. After a stop the encoder is that of the words so far.

    Raises:
        UsageError: the file is from another run, or cannot be read; or a learning rate at which training diverges.
    """
    units = units_of(corpus.words, settings.ngrams)
    content = ("\n".join(corpus.words).encode(), corpus.ids.tobytes(), corpus.starts.tobytes())
    file = StateFile(state, fingerprint_of(settings, content, WIDTH))
    inputs, outputs, done, spent = _start(corpus, settings, file)
    shares, aliases = alias_table(corpus.counts.astype(np.float64) ** 0.75)
    keep = _keep_probability(corpus.counts, settings.subsample)
    edges = _edges(corpus.starts)
    total, num_parts = int(corpus.starts[-1]) * settings.num_epochs, len(edges) - 1
    longest = int(np.diff(corpus.starts).max())
    saved, start = time.monotonic(), time.monotonic()

    def work(step: int) -> int:
        epoch, part = divmod(step, num_parts)
        share = (epoch * int(corpus.starts[-1]) + int(corpus.starts[edges[part]])) / total
        rate = settings.learning_rate * (1 - share * (1 - _LAST_RATE))
        is_cbow = settings.method == "cbow"
        num_rows = 1 if is_cbow else min(2 * settings.window, longest)
        train_sentences(
            corpus.ids, corpus.starts, edges[part], edges[part + 1], epoch, settings.seed, keep, shares, aliases,
            settings.window, settings.negatives, is_cbow, rate, *units, inputs, outputs,
            np.empty(longest, np.int32), np.empty(1 + settings.negatives, np.int32),
            *scratch(num_rows, 1 + settings.negatives, inputs.shape[1]),
        )  # fmt: skip
        return int(corpus.starts[edges[part + 1]] - corpus.starts[edges[part]])

    def save() -> None:
        seconds = spent + time.monotonic() - start
        file.write({"inputs": inputs, "outputs": outputs}, {"done": done, "seconds": seconds})

    hidden = None if progress is None else not progress
    last = settings.num_epochs * num_parts
    with tqdm(total=total, desc="training", unit=" words", unit_scale=True, delay=2, disable=hidden) as bar:
        while not should_stop() and done < last:
            block = range(done, min(done + _PARTS_AT_A_TIME, last))
            for number in map_on_cores(work, block):
                bar.update(number)
            done = block.stop
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()
    seconds = spent + time.monotonic() - start
    if done < last:
        save()
    report = TrainingReport(
        "finished" if done == last else "stopped",
        len(corpus.words),
        int(corpus.starts[-1]),
        total * done / last / max(seconds, 1e-9),
        seconds,
        torch.get_num_threads(),
    )
    encoder = _encoder(corpus.words, inputs[:, : settings.dimensions], units, settings)
    check_trained(encoder.vectors, settings.learning_rate)
    return encoder, report


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


def _start(corpus: WordCorpus, settings: WordTraining, file: StateFile) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Both matrices, the number of completed parts and their seconds: from the state file, or initial."""
    num_words, dim = len(corpus.words), settings.dimensions
    if state := file.read():
        arrays, facts = state
        return arrays["inputs"], arrays["outputs"], int(facts["done"]), float(facts["seconds"])
    random = np.random.default_rng(settings.seed)
    num_rows = num_words + (NUM_ROWS if settings.ngrams else 0)
    width = -(-dim // WIDTH) * WIDTH  # whole vectors; the rest stays 0
    inputs, outputs = np.zeros((num_rows, width), np.float32), np.zeros((num_words, width), np.float32)
    inputs[:, :dim] = (2 * random.random((num_rows, dim), np.float32) - 1) / np.float32(dim)
    return inputs, outputs, 0, 0.0


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
