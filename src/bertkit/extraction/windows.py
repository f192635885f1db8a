"""Words of texts, and the windows in which they are encoded. Shape letters: W words, T tokens."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertkit.tokenizer import Encodings, Tokenizer

_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
"""A word of published models: letters and digits, joined by hyphens; or another character."""

_MOST_KNOWN = 1_000_000
"""Words whose tokens are kept."""


@dataclass(frozen=True, eq=False)
class Words:
    """The words of a text that have tokens."""

    starts: np.ndarray  # (W,) int64 characters
    ends: np.ndarray  # (W,) int64, exclusive
    tokens: np.ndarray  # (T,) int64 ids
    first_tokens: np.ndarray  # (W + 1,) int64 cumulative numbers of tokens


class Window(NamedTuple):
    """A sequence of words that the model reads at once. Spans are decided in the window that owns their first word."""

    first: int  # word
    end: int  # exclusive
    first_owned: int
    end_owned: int  # exclusive


class WordSplitter:
    """Words of texts with their tokens; each word is tokenized alone, as published.

    Args:
        most_tokens: of a word; a longer one, such as a text without spaces, is split in halves.
        pattern: of a word.
        in_lower_case: the tokens are those of the words in lower case.
    """

    def __init__(
        self, tokenizer: Tokenizer, most_tokens: int, pattern: re.Pattern[str] = _WORD, *, in_lower_case: bool = False
    ) -> None:
        self.tokenizer, self.most_tokens = tokenizer, most_tokens
        self._pattern, self._in_lower_case = pattern, in_lower_case
        self._known: dict[str, np.ndarray] = {}

    def split(self, texts: Sequence[str]) -> list[Words]:
        """The words of each text."""
        spans = [[match.span() for match in self._pattern.finditer(text)] for text in texts]
        self._learn({text[start:end] for text, of_text in zip(texts, spans, strict=True) for start, end in of_text})
        return [self._words(text, of_text) for text, of_text in zip(texts, spans, strict=True)]

    def _words(self, text: str, spans: list[tuple[int, int]]) -> Words:
        waiting, kept, tokens = spans[::-1], list[tuple[int, int]](), list[np.ndarray]()
        while waiting:
            start, end = waiting.pop()
            ids = self._known.get(text[start:end])
            if ids is None:  # a half
                self._learn({text[start:end]})
                ids = self._known[text[start:end]]
            if len(ids) > self.most_tokens and end - start > 1:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
            elif len(ids):
                kept.append((start, end))
                tokens.append(ids[: self.most_tokens])
        starts, ends = np.array(kept, np.int64).reshape(-1, 2).T
        first_tokens = np.cumsum([0, *map(len, tokens)], dtype=np.int64)
        return Words(starts, ends, np.concatenate([np.empty(0, np.int64), *tokens]), first_tokens)

    def _learn(self, words: set[str]) -> None:
        if len(self._known) > _MOST_KNOWN:
            self._known = {}
        unknown = [word for word in words if word not in self._known]
        texts = [word.lower() for word in unknown] if self._in_lower_case else unknown
        self._known |= dict(zip(unknown, self.tokenizer.plain_ids(texts), strict=True)) if unknown else {}


def windows_of(words: Words, most_tokens: int, most_words: int, most_context: int) -> list[Window]:
    """Windows over all words, from the first word on; each word is owned by one of them.

    Around the owned words stand ``most_context`` words on each side, or fewer if these have more than a quarter of the
    tokens of a window.

    >>> words = Words(*(np.empty(0),) * 3, first_tokens=np.arange(11))
    >>> [tuple(window) for window in windows_of(words, 8, 6, 2)]
    [(0, 6, 0, 4), (2, 8, 4, 6), (4, 10, 6, 10)]
    """
    before = words.first_tokens
    num_words, first, owned, windows = len(before) - 1, 0, 0, list[Window]()
    while owned < num_words:
        end = int(np.searchsorted(before, before[first] + most_tokens, "right")) - 1
        end = min(end, first + most_words)
        end_owned = num_words
        if end < num_words:
            nearest = int(np.searchsorted(before, before[end] - most_tokens // 4))
            end_owned = max(end - most_context, nearest)
        windows.append(Window(first, end, owned, end_owned))
        owned = end_owned
        nearest = int(np.searchsorted(before, before[owned] - most_tokens // 4))
        first = max(owned - most_context, nearest)
    return windows


def encodings_of(rows: Sequence[np.ndarray], texts: Sequence[int]) -> Encodings:
    """The ids of sequences, and the index of the text of each, as encodings."""
    lengths, number = np.array([len(row) for row in rows], np.int64), len(rows)
    ids = np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int32)
    return Encodings(
        input_ids=ids,
        token_type_ids=np.zeros_like(ids),
        special_tokens_mask=np.zeros(len(ids), bool),
        spans=None,
        cu_seqlens=np.cumsum([0, *lengths]),
        num_tokens_cut=np.zeros(number, np.int64),
        cut_spans=np.full((number, 1, 2), -1, np.int64),
        text_index=np.array(texts, np.int64),
        owned=np.stack([np.zeros_like(lengths), lengths], axis=1),
    )
