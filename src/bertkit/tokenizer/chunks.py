"""A cache of tokens for the ``tokenizers`` library: words that were seen before are not tokenized again.

A text is cut before each space that stands between two other characters, such as "to| be,| or\\n not". Pre-tokenizers
that are known here end a pre-token there, so that each of these chunks has the same tokens in any text. New ones are
tokenized by the library, many as one text. Chunks at an end of a text are kept apart, as something may be put before a
text, or taken away.
"""

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from bertkit.tokenizer.ragged import ranges

_BORDER = re.compile(r" (?<=\S )(?=\S)")
_TOGETHER = 50
"""New chunks that are tokenized as one text."""
_MOST_CHARACTERS = 4_000_000
"""Of all chunks that are kept; then the cache begins anew."""

_FEWEST_CHARACTERS = 1_000
"""Of texts that are tokenized together: the library is as fast for fewer."""

_ALWAYS_CUT = {"BertPreTokenizer", "Metaspace", "Whitespace", "WhitespaceSplit"}
_LOCAL = {"Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "StripAccents"}
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = {  # of GPT-2, of GPT-4 and Llama 3, and of Qwen 2
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    rf"{_WORDS}\p{{N}}{{1,3}}{_OTHERS}",
    rf"{_WORDS}\p{{N}}{_OTHERS}",
}


def have_equal_tokens(library: tokenizers.Tokenizer) -> bool:
    """Whether chunks have the same tokens in any text, by the library's normalizer, pre-tokenizer and added tokens."""
    steps = library.normalizer, library.pre_tokenizer
    before, after = (None if step is None else json.loads(step.__getstate__()) for step in steps)
    return (
        all(map(_is_local, _parts(before, "normalizers")))
        and any(map(_cuts, _parts(after, "pretokenizers")))
        and not any(map(_may_cross, library.get_added_tokens_decoder().values()))
    )


def _parts(step: Mapping[str, Any] | None, name: str) -> Iterator[Mapping[str, Any]]:
    if step is not None and step["type"] == "Sequence":
        for part in step[name]:
            yield from _parts(part, name)
    elif step is not None:
        yield step


def _is_local(normalizer: Mapping[str, Any]) -> bool:
    """Whether it changes a chunk as it does in a text."""
    if normalizer["type"] == "Strip":
        return not normalizer["strip_left"]  # it also strips what follows an added token
    if normalizer["type"] == "Replace":
        return normalizer["pattern"] == {"Regex": " {2,}"} or len(normalizer["pattern"].get("String", "ab")) == 1
    return normalizer["type"] in _LOCAL


def _cuts(pre_tokenizer: Mapping[str, Any]) -> bool:
    """Whether it ends a pre-token before each chunk."""
    kind = pre_tokenizer["type"]
    if kind == "Split":
        return pre_tokenizer["pattern"].get("Regex") in _PATTERNS and not pre_tokenizer["invert"]
    if kind == "ByteLevel":
        return pre_tokenizer.get("use_regex", True)
    return kind in _ALWAYS_CUT and pre_tokenizer.get("split", True)


def _may_cross(token: tokenizers.AddedToken) -> bool:
    """Whether an added token may hold the end of a chunk and the beginning of the next."""
    content = token.content
    return token.rstrip or (not content.isspace() and re.search(r"\S (?!\s)", content) is not None)


class Tokens(NamedTuple):
    """Tokens of texts without special tokens, end to end; N texts, T tokens in all."""

    ids: np.ndarray  # (T,) int32
    lengths: np.ndarray  # (N,) int64, tokens of each text
    spans: np.ndarray | None  # (T, 3) int32: start and end in characters of the text, number of the word or -1


def encode(library: tokenizers.Tokenizer, texts: Sequence[str], with_spans: bool) -> Tokens:
    """The tokens that the library makes of texts; raises what it raises."""
    encode_batch = library.encode_batch if with_spans else library.encode_batch_fast
    encodings = encode_batch(texts, add_special_tokens=False)
    ids, spans = _array(one.ids for one in encodings), None
    if with_spans:
        spans = np.empty((len(ids), 3), np.int32)
        spans[:, :2] = _array(chain.from_iterable(one.offsets for one in encodings)).reshape(-1, 2)
        spans[:, 2] = _word_ids(encodings)
    return Tokens(ids, np.fromiter(map(len, encodings), np.int64, len(encodings)), spans)


def _word_ids(encodings: list[tokenizers.Encoding]) -> np.ndarray:
    """Numbers of words; -1 for tokens of no word."""
    try:
        return _array(one.word_ids for one in encodings)
    except TypeError:  # None is no integer
        return _array((-1 if word is None else word for word in one.word_ids) for one in encodings)


def _array(rows: Iterable[Iterable[int | None]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), np.int32)


class _Mixed(Exception):
    """Tokens of which the chunk is not known."""


class _Rows(dict[Any, int]):
    """Numbers of chunks. A chunk that has none gets the next one, and is among ``new``."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[Any] = []

    def __missing__(self, chunk: Any) -> int:
        self.new.append(chunk)
        self[chunk] = number = len(self)
        return number


class CachingLibrary:
    """A tokenizer of the library with caches of chunks, without and with spans; threads may share it."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        one, two = encode(library, ["a", "a a"], False).lengths.tolist()
        self.library, self._has_caches = library, 0 < one < two and have_equal_tokens(library)
        self._caches: dict[bool, _Cache] = {}
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], with_spans: bool) -> Tokens:
        """As `encode`, by a cache unless there are only a few words, or another thread uses the caches."""
        if not self._has_caches or sum(map(len, texts)) < _FEWEST_CHARACTERS or not self._lock.acquire(blocking=False):
            return encode(self.library, texts, with_spans)
        try:
            if with_spans not in self._caches:
                self._caches[with_spans] = _Cache(self.library, with_spans)
            return self._caches[with_spans].tokens(texts)
        except _Mixed:
            self._has_caches = False
            return encode(self.library, texts, with_spans)
        except BaseException:
            self._caches.clear()
            raise
        finally:
            self._lock.release()


class _Cache:
    """The tokens of chunks, for one thread at a time; to be thrown away after an exception."""

    def __init__(self, library: tokenizers.Tokenizer, with_spans: bool) -> None:
        self._library, self._with_spans = library, with_spans
        self._clear()

    def _clear(self) -> None:
        self._rows, self._num_characters, self._num_tokens = _Rows(), 0, 0
        self._ids, self._spans = np.empty(0, np.int32), np.empty((0, 3), np.int32)
        self._sizes = np.empty((0, 4), np.int64)  # first token, tokens, characters and words of each chunk

    def tokens(self, texts: Sequence[str]) -> Tokens:
        """The tokens of texts; raises what the library raises."""
        if self._num_characters > _MOST_CHARACTERS:
            self._clear()
        chunks: list[Any] = []
        counts = np.empty(len(texts), np.int64)
        for index, text in enumerate(texts):
            own: list[Any] = _BORDER.split(text)
            if len(own) > 1:
                own[0], own[-1] = ("", own[0], " a"), ("a", " " + own[-1], "")
            else:
                own[0] = "", own[0], ""
            counts[index] = len(own)
            chunks += own
        rows = np.fromiter(map(self._rows.__getitem__, chunks), np.int64, len(chunks))
        if self._rows.new:
            self._learn(self._rows.new)
            self._rows.new = []
        firsts, lengths, num_characters, num_words = self._sizes[rows].T
        places, first_chunks = ranges(firsts, lengths), np.cumsum(counts) - counts
        num_tokens = np.add.reduceat(lengths, first_chunks)
        if not self._with_spans:
            return Tokens(self._ids[places], num_tokens, None)
        before = np.stack([num_characters, num_characters, num_words], axis=1)
        before = np.cumsum(before, axis=0) - before
        before -= np.repeat(before[first_chunks], counts, axis=0)
        spans = self._spans[places]
        no_words = spans[:, 2] < 0
        spans += np.repeat(before.astype(np.int32), lengths, axis=0)
        spans[no_words, 2] = -1
        return Tokens(self._ids[places], num_tokens, spans)

    def _learn(self, chunks: list[Any], together: int = _TOGETHER) -> None:
        """Keep the tokens of new chunks."""
        inside = [index for index, chunk in enumerate(chunks) if isinstance(chunk, str)]
        at_ends = [index for index, chunk in enumerate(chunks) if not isinstance(chunk, str)]
        groups = [
            ["a", *(" " + chunks[index] for index in inside[first : first + together]), " a"]
            for first in range(0, len(inside), together)
        ]
        kept = [one for group in groups for one in (False, *[True] * (len(group) - 2), False)]
        for before, chunk, after in map(chunks.__getitem__, at_ends):
            groups.append([*filter(None, [before]), chunk, *filter(None, [after])])
            kept += [False] * bool(before) + [True] + [False] * bool(after)
        tokens = encode(self._library, list(map("".join, groups)), True)
        parts = _Parts.of(groups, tokens)
        if not parts.are_whole and together > 1:
            self._learn(chunks, 1)
            return
        order, chosen = np.array([*inside, *at_ends]), np.flatnonzero(kept)
        lengths, sizes = parts.num_tokens[chosen], np.empty((len(chunks), 4), np.int64)
        firsts = self._num_tokens + np.cumsum(lengths) - lengths
        sizes[order] = np.stack([firsts, lengths, parts.num_characters[chosen], parts.num_words[chosen]], axis=1)
        places = ranges(parts.firsts[chosen], lengths)
        if self._with_spans and tokens.spans is not None:
            spans = tokens.spans[places]
            no_words = spans[:, 2] < 0
            spans -= np.repeat(parts.before[chosen], lengths, axis=0)
            spans[no_words, 2] = -1
            self._spans = _extended(self._spans, self._num_tokens, spans)
        self._ids = _extended(self._ids, self._num_tokens, tokens.ids[places])
        self._sizes = _extended(self._sizes, len(self._rows) - len(chunks), sizes)
        self._num_tokens += len(places)
        self._num_characters += int(sizes[:, 2].sum())


class _Parts(NamedTuple):
    """Which tokens of texts are those of their parts; P parts in all."""

    firsts: np.ndarray  # (P,) int64, first token
    num_tokens: np.ndarray  # (P,) int64
    num_characters: np.ndarray  # (P,) int64
    num_words: np.ndarray  # (P,) int64; 0 for the last one of a text
    before: np.ndarray  # (P, 3) int32: twice the characters, and the words of the text before
    are_whole: bool  # no word without tokens may be of two parts

    @classmethod
    def of(cls, groups: Sequence[Sequence[str]], tokens: Tokens) -> "_Parts":
        """The parts of texts, by the characters where tokens start.

        Raises:
            _Mixed: tokens are not in the order of the parts.
        """
        assert tokens.spans is not None
        num_parts = np.fromiter(map(len, groups), np.int64, len(groups))
        sizes = np.fromiter(map(len, chain.from_iterable(groups)), np.int64, num_parts.sum())
        starts, first_parts = np.cumsum(sizes) - sizes, np.cumsum(num_parts) - num_parts
        is_first, is_last = np.zeros((2, len(sizes)), np.bool_)
        is_first[first_parts] = is_last[first_parts + num_parts - 1] = True
        first, last = (np.repeat(each, tokens.lengths) for each in (first_parts, first_parts + num_parts - 1))
        part = np.searchsorted(starts, tokens.spans[:, 0] + starts[first], "right") - 1
        part = np.clip(part, first, last)  # a token of white space at the end of a text may have the next one's start
        if (np.diff(part) < 0).any():
            raise _Mixed
        firsts, ends = (np.searchsorted(part, np.arange(len(sizes)), side) for side in ("left", "right"))
        words = np.append(tokens.spans[:, 2], 0)
        first_words = np.where(is_first, 0, words[firsts - 1] + 1)
        num_words = np.where(is_last, 0, words[ends] - first_words)
        steps, first_tokens = np.diff(words[:-1], prepend=0), np.unique(np.cumsum(tokens.lengths) - tokens.lengths)
        first_tokens = first_tokens[first_tokens < len(steps)]
        steps[first_tokens] = 2 * words[first_tokens]
        before = starts - np.repeat(starts[first_parts], num_parts)
        before = np.stack([before, before, first_words], axis=1).astype(np.int32)
        return cls(firsts, ends - firsts, sizes, num_words, before, bool(((steps == 0) | (steps == 1)).all()))


def _extended(room: np.ndarray, length: int, rows: np.ndarray) -> np.ndarray:
    """An array of which ``length`` rows are in use, with further ones after these."""
    if length + len(rows) > len(room):
        room = np.concatenate([room[:length], np.empty((length + 2 * len(rows), *room.shape[1:]), room.dtype)])
    room[length : length + len(rows)] = rows
    return room
