"""A cache of tokens for the ``tokenizers`` library: words that were seen before are not tokenized again.

A text is cut before each space that stands between two other characters, such as "to| be,| or\\n not". Pre-tokenizers
that are known here end a pre-token there, so that each of these chunks has the same tokens in any text. A new one is
tokenized by the library, between two words that are the same for all. Chunks at an end of a text are kept apart, as
something may be put before a text, or taken away.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from bertkit.tokenizer.ragged import ranges

_BORDER = re.compile(r" (?<=\S )(?=\S)")
_BEFORE, _AFTER = "a ", " a"
"""What a new chunk stands between. The space before a chunk is one of its characters."""
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


def have_equal_tokens(definition: Mapping[str, Any]) -> bool:
    """Whether chunks have the same tokens in any text, by the content of a tokenizer.json."""
    before, after = definition.get("normalizer"), definition.get("pre_tokenizer")
    return (
        all(map(_is_local, _parts(before, "normalizers")))
        and any(map(_cuts, _parts(after, "pretokenizers")))
        and not any(map(_may_cross, definition.get("added_tokens") or ()))
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


def _may_cross(token: Mapping[str, Any]) -> bool:
    """Whether an added token may hold the end of a chunk and the beginning of the next."""
    content = token["content"]
    return token["rstrip"] or (not content.isspace() and re.search(r"\S (?!\s)", content) is not None)


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

    def __init__(self, library: tokenizers.Tokenizer, definition: Mapping[str, Any]) -> None:
        self.library = library
        one, both = encode(library, [_BEFORE[:-1], _BEFORE[:-1] + _AFTER], False).lengths.tolist()
        self._num_around = (one, both - one)
        self._has_caches = min(self._num_around) > 0 and have_equal_tokens(definition)
        self._caches: dict[bool, _Cache] = {}
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], with_spans: bool) -> Tokens:
        """As `encode`, by a cache unless there are only a few words, or another thread uses the caches."""
        if not self._has_caches or sum(map(len, texts)) < _FEWEST_CHARACTERS or not self._lock.acquire(blocking=False):
            return encode(self.library, texts, with_spans)
        try:
            if with_spans not in self._caches:
                self._caches[with_spans] = _Cache(self.library, with_spans, *self._num_around)
            return self._caches[with_spans].tokens(texts)
        except BaseException:
            self._caches.clear()
            raise
        finally:
            self._lock.release()


class _Cache:
    """The tokens of chunks, for one thread at a time; to be thrown away after an exception."""

    def __init__(self, library: tokenizers.Tokenizer, with_spans: bool, num_before: int, num_after: int) -> None:
        self._library, self._with_spans = library, with_spans
        self._num_before, self._num_after = num_before, num_after
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
                own[0], own[-1] = ("", own[0], _AFTER), (_BEFORE, own[-1], "")
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

    def _learn(self, chunks: list[Any]) -> None:
        """Keep the tokens of new chunks."""
        around = [(_BEFORE, chunk, _AFTER) if isinstance(chunk, str) else chunk for chunk in chunks]
        tokens = encode(self._library, list(map("".join, around)), self._with_spans)
        is_before, is_after = (np.array([bool(one[side]) for one in around], np.int64) for side in (0, 2))
        ends = np.cumsum(tokens.lengths) - is_after * self._num_after
        firsts = ends - tokens.lengths + is_after * self._num_after + is_before * self._num_before
        places = ranges(firsts, ends - firsts)
        sizes = np.zeros((len(chunks), 4), np.int64)
        sizes[:, 1], sizes[:, 2] = ends - firsts, [len(chunk) for _, chunk, _ in around] + is_before
        sizes[:, 0] = self._num_tokens + np.cumsum(sizes[:, 1]) - sizes[:, 1]
        if tokens.spans is not None:
            first_word = np.where(is_before, tokens.spans[firsts - 1, 2] + 1, 0)
            sizes[:, 3] = np.where(is_after, tokens.spans[ends * is_after, 2] - first_word, 0)
            before = np.stack([is_before, is_before, first_word], axis=1)  # one character
            spans = tokens.spans[places] - np.repeat(before, ends - firsts, axis=0)
            spans[tokens.spans[places, 2] < 0, 2] = -1
            self._spans = _extended(self._spans, self._num_tokens, spans)
        self._ids = _extended(self._ids, self._num_tokens, tokens.ids[places])
        self._sizes = _extended(self._sizes, len(self._rows) - len(chunks), sizes)
        self._num_tokens += len(places)
        self._num_characters += int(sizes[:, 2].sum())


def _extended(room: np.ndarray, length: int, rows: np.ndarray) -> np.ndarray:
    """An array of which ``length`` rows are in use, with further ones after these."""
    if length + len(rows) > len(room):
        room = np.concatenate([room[:length], np.empty((length + 2 * len(rows), *room.shape[1:]), room.dtype)])
    room[length : length + len(rows)] = rows
    return room
