"""Frozen features of the compared models: probes of words, and similarity of sentences.

Shape letters: T total_tokens, W words, F feature width.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bertkit.architectures import Network
from bertkit.batch import batch_of_ids
from bertkit.comparison.predictors import Predictor
from bertkit.errors import DataError, UsageError
from bertkit.inspection.contextual import LabeledWords, cosines, pieces_of
from bertkit.inspection.probes import probe
from bertkit.tasks.metrics import spearman
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.encoding import Encoding

_ROWS = 64  # texts per batch
_LETTERS = 200  # characters of a text on each side of a labeled word
Pairs = Sequence[tuple[str, str, float]]


@dataclass(frozen=True)
class Probes:
    """Labeled data for frozen features; everything is optional."""

    tags: tuple[Sequence[LabeledWords], Sequence[LabeledWords]] | None = None  # for training and testing
    senses: Sequence[tuple[Sequence[LabeledWords], Sequence[LabeledWords]]] = ()  # one labeled word in each text
    pairs: Pairs = ()  # two sentences and their similarity


def read_senses(folder: str | Path) -> list[tuple[list[LabeledWords], list[LabeledWords]]]:
    """Words with their senses, for training and testing, from a folder in CoarseWSD-20's layout.

    Each ambiguous word has a folder with ``train.data.txt``, ``train.gold.txt``, ``test.data.txt`` and
    ``test.gold.txt``: in the data the index of the word and the text of words joined by spaces, in the gold its sense.

    Raises:
        DataError: no such folders, a row that is not of this form, or data and gold of different lengths.
    """
    folders = sorted(path.parent for path in Path(folder).glob("*/train.data.txt"))
    if not folders:
        raise DataError(f"{folder}: no senses; expected a folder for each word, with train.data.txt")
    return [(_occurrences(one, "train"), _occurrences(one, "test")) for one in folders]


def _occurrences(folder: Path, part: str) -> list[LabeledWords]:
    try:
        lines, senses = ((folder / f"{part}.{kind}.txt").read_text("utf-8").split("\n") for kind in ("data", "gold"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise DataError(f"{folder}: {part}.data.txt or {part}.gold.txt cannot be read ({reason})") from error
    rows = [line for line in lines if line]
    labels = [sense for sense in senses if sense]
    if len(rows) != len(labels):
        raise DataError(f"{folder}: {len(rows)} texts and {len(labels)} senses in {part}: expected as many")
    return [
        _occurrence(row, label, folder / f"{part}.data.txt", n)
        for n, (row, label) in enumerate(zip(rows, labels, strict=True), 1)
    ]


def _occurrence(row: str, label: str, path: Path, number: int) -> LabeledWords:
    index, _, text = row.partition("\t")
    words = text.split(" ")
    if not re.fullmatch("[0-9]+", index) or int(index) >= len(words):
        raise DataError(f"{path}:{number}: {row!r:.40}: expected the index of a word, a tab, and the text")
    start = sum(len(word) + 1 for word in words[: int(index)])
    first = max(0, start - _LETTERS)
    span = (start - first, start - first + len(words[int(index)]))
    return LabeledWords(text[first : start + _LETTERS], [span], [label])


@torch.inference_mode()
def token_features(
    network: Network | Predictor, tokenizer: Tokenizer, texts: Sequence[str], max_length: int
) -> Iterator[tuple[Encoding, np.ndarray]]:
    """Yield each text, cut to ``max_length`` tokens, as its Encoding and (T, F) float32: the last layer at each token,
    which the model sees."""
    for first in range(0, len(texts), _ROWS):
        encodings = list(tokenizer.encode_batch(list(texts[first : first + _ROWS])))
        lengths = [min(len(one.input_ids), max_length) for one in encodings]
        rows = [one.input_ids[:length].astype(np.int64) for one, length in zip(encodings, lengths, strict=True)]
        batch = batch_of_ids(rows)
        if isinstance(network, Network):
            states = network.encoder(batch, with_pooled=False).last_hidden_state
        else:
            states = network.encoder.states(batch)
        parts = np.split(states.float().numpy(), np.cumsum(lengths)[:-1])
        yield from zip(encodings, parts, strict=True)


def word_features(
    network: Network | Predictor, tokenizer: Tokenizer, labeled: Sequence[LabeledWords], max_length: int
) -> tuple[np.ndarray, list[str]]:
    """(W, F) means over the tokens of each labeled word, and the W labels; words without tokens, or beyond
    ``max_length`` tokens, are left out."""
    vectors, labels = [], []
    texts = [one.text for one in labeled]
    for one, (encoding, states) in zip(labeled, token_features(network, tokenizer, texts, max_length), strict=True):
        for span, label in zip(one.spans, one.labels, strict=True):
            chosen = pieces_of(encoding, span)[: len(states)]
            if chosen.any():
                vectors.append(states[chosen].mean(axis=0))
                labels.append(label)
    if not vectors:
        raise UsageError("no labeled words: expected some for training and others for testing")
    return np.stack(vectors), labels


def measure_features(
    network: Network | Predictor, tokenizer: Tokenizer, probes: Probes, max_length: int, seed: int
) -> dict[str, float]:
    """Scores of frozen features.

    Returns:
        ``parts_of_speech``: accuracy of a linear classifier of words. ``senses``: accuracy of the nearest mean vector
        of a sense, the mean over words. ``similarity``: Spearman's correlation of the cosine of two sentences, each
        the mean of its tokens, with their given similarity; 0 for a sentence without tokens.
    """
    scores = {}
    if probes.tags is not None:
        (train, names), (test, expected) = (word_features(network, tokenizer, part, max_length) for part in probes.tags)
        number_of = {name: number for number, name in enumerate(sorted(set(names)))}
        labels = [np.array([number_of.get(name, -1) for name in part]) for part in (names, expected)]
        scores["parts_of_speech"] = probe(train, labels[0], test, labels[1], len(number_of), seed)
    if probes.senses:
        accuracies = []
        for parts in probes.senses:
            (train, names), (test, expected) = (word_features(network, tokenizer, part, max_length) for part in parts)
            accuracies.append(float((nearest_senses(train, np.array(names), test) == np.array(expected)).mean()))
        scores["senses"] = float(np.mean(accuracies))
    if probes.pairs:
        texts = [text for first, second, _ in probes.pairs for text in (first, second)]
        rows = token_features(network, tokenizer, texts, max_length)
        vectors = np.stack([_mean_of_tokens(encoding, states) for encoding, states in rows])
        first, second = vectors[::2], vectors[1::2]
        given = np.array([score for _, _, score in probes.pairs])
        scores["similarity"] = spearman(
            np.array([cosines(a[None], b[None])[0, 0] for a, b in zip(first, second, strict=True)]), given
        )
    return scores


def nearest_senses(train: np.ndarray, senses: np.ndarray, test: np.ndarray) -> np.ndarray:
    """The sense of each vector by the nearest centroid: the mean of the training vectors of a sense, by cosine.

    Args:
        train: (n, D).
        senses: (n,) labels.
        test: (m, D).

    Returns:
        (m,) labels.
    """
    names = np.unique(senses)
    centroids = np.stack([train[senses == name].mean(axis=0) for name in names])
    return names[cosines(test, centroids).argmax(axis=1)]


def _mean_of_tokens(encoding: Encoding, states: np.ndarray) -> np.ndarray:
    """(F,) mean of (T, F) states without those of [CLS] and [SEP]; zeros without others."""
    own = states[~encoding.special_tokens_mask[: len(states)]]
    return own.mean(axis=0) if len(own) else np.zeros(states.shape[1], np.float32)
