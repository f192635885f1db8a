"""Vectors of words in their sentences at every layer, and sentences with syntax trees.

Shape letters: W words of all sentences, S layers, D hidden_size.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal
from unicodedata import category, normalize

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.errors import DataError, UsageError, check_type
from bertkit.files.lines import Line, location, open_lines
from bertkit.inference import Runner
from bertkit.model import Model
from bertkit.tokenizer.encoding import Encoding, Span

_SENTENCES_AT_A_TIME = 256


@dataclass(frozen=True)
class LabeledWords:
    """A text with labels of some of its words."""

    text: str
    spans: Sequence[Span]  # character spans of the labeled words
    labels: Sequence[str]

    @property
    def words(self) -> list[str]:
        """The labeled words in lowercase."""
        return [self.text[start:end].lower() for start, end in self.spans]


@dataclass(frozen=True)
class Tree:
    """A sentence of words with their heads and relations."""

    words: tuple[str, ...]
    heads: tuple[int, ...]  # index of the head of each word, -1 for the root
    relations: tuple[str, ...]  # to the head, without subtype
    tags: tuple[str, ...]  # parts of speech

    @property
    def text(self) -> str:
        """The words joined by spaces."""
        return " ".join(self.words)

    @property
    def spans(self) -> list[Span]:
        """Character spans of the words in `text`."""
        starts = np.cumsum([0, *(len(word) + 1 for word in self.words)])[:-1].tolist()
        return [(start, start + len(word)) for start, word in zip(starts, self.words, strict=True)]

    def labeled(self, label: Literal["tags", "relations"]) -> LabeledWords:
        """The words with their parts of speech, or with their relations to their heads."""
        return LabeledWords(self.text, self.spans, self.tags if label == "tags" else self.relations)

    def distances(self) -> np.ndarray:
        """(n, n) int64 number of edges between each two words."""
        number = len(self.words)
        distances = np.where(np.eye(number, dtype=np.bool_), 0, number + 1)
        for word, head in enumerate(self.heads):
            if head >= 0:
                distances[word, head] = distances[head, word] = 1
        for middle in range(number):
            np.minimum(distances, distances[:, middle, None] + distances[middle], out=distances)
        return distances


@cache
def _of_words() -> str:
    r"""The characters of words, for a regular expression: ``\w`` and the marks that it lacks, such as vowel signs and
    accents that follow their letter."""
    return r"\w" + "".join(chr(code) for code in range(0x300, 0x20000) if category(chr(code))[0] == "M")


def first_occurrence(word: str, text: str) -> Span | None:
    """The characters of a word in a text, matched as a whole word, ignoring case and whether accents are composed; None
    if it is not there."""
    for name, value in (("the word", word), ("a text", text)):
        check_type(name, value, str)
    own = _of_words()
    forms = "|".join(re.escape(normalize(form, word)) for form in ("NFC", "NFD"))
    match = re.search(rf"(?<![{own}])(?:{forms})(?![{own}])", text, re.IGNORECASE) if word.strip() else None
    return match.span() if match else None


def word_spans(text: str) -> list[Span]:
    """The characters of each word of a text."""
    return [match.span() for match in re.finditer(rf"\w[{_of_words()}]*", text)]


def drawn_words(texts: Sequence[str], most: int, seed: int) -> list[tuple[int, Span]]:
    """Random occurrences of words, in order: index of the text, and character span."""
    occurrences = [(index, span) for index, text in enumerate(texts) for span in word_spans(text)]
    return [occurrences[index] for index in np.sort(np.random.default_rng(seed).permutation(len(occurrences))[:most])]


def spans_by_text(texts: Sequence[str], drawn: Iterable[tuple[int, Span]]) -> list[list[Span]]:
    """The spans of `drawn_words` in each text."""
    spans: list[list[Span]] = [[] for _ in texts]
    for index, span in drawn:
        spans[index].append(span)
    return spans


def read_trees(path: str | Path, limit: int | None = None) -> list[Tree]:
    """Read at most ``limit`` sentences of a CoNLL-U file, without multiword tokens and empty nodes.

    Raises:
        DataError: no such file, or one that is not UTF-8; a line without ten columns, a head that is not a number or
            outside its sentence, or no sentences.
    """
    trees: list[Tree] = []
    rows: list[list[str]] = []
    first = 1  # line of the sentence
    with open_lines(path) as lines:
        for line in chain(lines, [Line(0, "\n")]):  # ends the last sentence
            if limit is not None and len(trees) >= limit:
                break
            if line.invalid:
                raise DataError(location(path, line.number) + line.invalid)
            cells = line.content.split("\t")
            if not line.content.strip():
                if rows:
                    trees.append(_tree(rows, path, first))
                rows = []
            elif not line.content.startswith("#"):
                if len(cells) != 10:
                    place = location(path, line.number)
                    raise DataError(f"{place}: {len(cells)} columns, expected the ten of CoNLL-U")
                first = line.number if not rows else first
                if cells[0].isdecimal():
                    rows.append(cells)
    if not trees:
        raise DataError(f"{path} holds no sentences: expected CoNLL-U with heads and relations")
    return trees


def _tree(rows: list[list[str]], path: str | Path, first: int) -> Tree:
    heads = [int(row[6]) - 1 if row[6].isdecimal() else len(rows) for row in rows]
    if max(heads) >= len(rows):
        raise DataError(f"{location(path, first)}: the sentence from here on has a head that is not one of its words")
    return Tree(
        tuple(row[1].replace(" ", "_") for row in rows),
        tuple(heads),
        tuple(row[7].split(":")[0] for row in rows),
        tuple(row[3] for row in rows),
    )


def word_vectors(
    model: Model, texts: Sequence[str], spans: Sequence[Sequence[Span]], layers: Sequence[int] | None = None
) -> np.ndarray:
    """Vectors of words at each layer: the mean over the pieces of a word.

    Args:
        spans: character spans of the words of each text.
        layers: numbers of the layers, 0 for the embeddings; None: all.

    Returns:
        (S, W, D) float32, the words of the first text, of the second, and so on.

    Raises:
        OverLengthError: a text has more tokens than the model accepts.
        UsageError: a word without tokens, or no texts.
    """
    if not texts:
        raise UsageError("no texts: expected at least one")
    chosen = range(model.config.num_hidden_layers + 1) if layers is None else layers
    vectors = []
    for number, (encoding, states) in enumerate(token_states(model, texts, chosen)):
        vectors += [word_states(encoding, states, texts[number], span) for span in spans[number]]
    return np.stack(vectors, axis=1) if vectors else np.empty((len(chosen), 0, model.config.hidden_size), np.float32)


def pieces_of(encoding: Encoding, span: Span) -> np.ndarray:
    """(n,) bool, the tokens that share characters with a span of the text."""
    starts, ends = encoding.offsets.T
    return (starts < span[1]) & (ends > span[0])


def word_states(encoding: Encoding, states: np.ndarray, text: str, span: Span) -> np.ndarray:
    """(S, D) mean of the (n, S, D) states of a text over the tokens of a word.

    Raises:
        UsageError: there are none.
    """
    pieces = pieces_of(encoding, span)
    if not pieces.any():
        raise UsageError(f"{text[slice(*span)]!r} in the text {text!r:.60} has no tokens; omit the word")
    return states[pieces].mean(axis=0)


def token_states(model: Model, texts: Sequence[str], layers: Sequence[int]) -> Iterator[tuple[Encoding, np.ndarray]]:
    """Yield each text as its Encoding and its (n, S, D) float32 hidden states at ``layers``.

    Raises:
        OverLengthError: a text has more tokens than the model accepts.
    """
    runner = Runner(model.network, model.tokenizer, model.encoder)

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        states = runner.encoder(batch, with_hidden_states=True, with_pooled=False).hidden_states
        assert states is not None
        return torch.stack([states[layer] for layer in layers], dim=1).float()  # (T, S, D)

    for first in range(0, len(texts), _SENTENCES_AT_A_TIME):
        part = list(texts[first : first + _SENTENCES_AT_A_TIME])
        encodings = runner.encode_whole(part, first_index=first)
        states = runner.run(encodings, forward, rows_per_sequence=encodings.seqlens).cpu().numpy()
        for number, encoding in enumerate(encodings):
            yield encoding, states[encodings.cu_seqlens[number] : encodings.cu_seqlens[number + 1]]


def cosines(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(n, m) cosine similarities of (n, D) and (m, D) vectors."""
    return normalized(rows) @ normalized(columns).T


def normalized(vectors: np.ndarray) -> np.ndarray:
    """(..., D) vectors of length 1; zero vectors stay zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
