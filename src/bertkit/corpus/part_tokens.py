"""Tokenize the sentences of one part of a file: the work of one thread when a shard is written."""

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bertkit.compiled import lean
from bertkit.corpus.documents import Part
from bertkit.corpus.sentences import sentence_text
from bertkit.files import SkippedRow
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.encoding import Pieces
from bertkit.tokenizer.wordpiece import WordPiece

_FIRST_STATE, _FACTOR = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, here with one token per step
_MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # from SplitMix64, so that all bits
# matter

_MARKUP = re.compile(
    rb"<\|[A-Za-z_]{1,40}\|>"
    rb"|</?(?:a|b|body|br|div|em|h[1-6]|head|html|i|img|li|ol|p|pre|script|span|strong|table|td|tr|ul)(?:\s[^<>]{0,500})?/?>",
    re.IGNORECASE,
)
"""Marks of HTML, and of other models, such as <|endoftext|>."""
_MOST_BYTES = 4  # of a character in UTF-8
_ONE, _TWO, _THREE, _FOUR = (np.uint64(value) for value in (1, 2, 3, 4))  # unsigned, so that indices do not count from
# the end


@dataclass(frozen=True, eq=False)
class PartTokens:
    """Tokens of the S sentences of a part, n tokens in total."""

    tokens: np.ndarray  # (n,) without special tokens
    lengths: np.ndarray  # (S,) int64 number of tokens of each sentence; 0 if empty or skipped
    hashes: np.ndarray  # (S,) uint64 of the tokens
    starts_document: np.ndarray  # (S,) bool
    set_aside: list[SkippedRow]
    num_invalid: int  # runs of bytes that are not UTF-8
    marked_up: np.ndarray  # int64 numbers of the documents with markup, in order; 0: that of the previous part


def tokenize_part(part: Part, tokenizer: Tokenizer, dtype: np.dtype) -> PartTokens:
    """Split a part into sentences and tokenize them, on one thread; sentences that are not UTF-8 are skipped."""
    bounds, starts_document = part.sentences()
    pieces, num_invalid = _encode(tokenizer, part.data, bounds, starts_document)
    wrong = num_invalid > 0
    indices = np.flatnonzero(wrong)
    lines = part.lines_of(bounds[indices]) if len(indices) else indices
    invalid = [
        part.invalid(bounds[index], bounds[index + 1], line)
        for index, line in zip(indices, lines.tolist(), strict=True)
    ]
    tokens = np.empty(len(pieces.input_ids), dtype)
    lengths = np.empty(len(starts_document), np.int64)
    count = _copy(pieces.input_ids, pieces.cu_seqlens, wrong, tokens, lengths)
    tokens = tokens[:count]
    hashes = hash_sentences(tokens, lengths)
    return PartTokens(
        tokens,
        lengths,
        hashes,
        starts_document,
        [*part.set_aside, *invalid],
        int(num_invalid.sum()),
        _marked_up(part, bounds, starts_document),
    )


def _marked_up(part: Part, bounds: np.ndarray, starts_document: np.ndarray) -> np.ndarray:
    marks = np.array([mark.start() for mark in _MARKUP.finditer(part.data.data)], np.int64)
    return np.unique(np.cumsum(starts_document)[np.searchsorted(bounds, marks, "right") - 1]) if len(marks) else marks


def hash_sentences(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(S,) uint64: a hash of the tokens of each sentence; sentences are stored end to end."""
    hashes = np.empty(len(lengths), np.uint64)
    _hash(tokens, lengths, hashes, tokens.itemsize > 2)
    return hashes


def take_sentences(tokens: np.ndarray, lengths: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The tokens of the sentences selected by (S,) bool ``chosen``, end to end."""
    taken = np.empty(int(lengths[chosen].sum()), tokens.dtype)
    _take(tokens, lengths, chosen, taken)
    return taken


def _encode(
    tokenizer: Tokenizer, data: np.ndarray, bounds: np.ndarray, starts_document: np.ndarray
) -> tuple[Pieces, np.ndarray]:
    """The tokens of each sentence, as from ``Tokenizer.encode``, and its number of runs of bytes that are not UTF-8.

    White space before a sentence inside a document is one space of its text: other tokenizers than WordPiece have it in
    their tokens. That before a part is not read, and taken to be there.
    """
    engine = tokenizer.engine
    if isinstance(engine, WordPiece) and all(token.special for token in engine.added_tokens):
        return engine.tokenize_bytes(data, bounds, with_spans=False, num_threads=1)
    raw = [data[start:end].tobytes() for start, end in pairwise(bounds)]
    texts = [sentence_text(one) for one in raw]
    num_invalid = [text.count("\ufffd") - one.count(b"\xef\xbf\xbd") for text, one in zip(texts, raw, strict=True)]
    if not isinstance(engine, WordPiece):
        follows_space = [True, *(one[-_MOST_BYTES:].decode("utf-8", "ignore")[-1:].isspace() for one in raw[:-1])]
        parts = zip(texts, follows_space[: len(texts)], starts_document.tolist(), strict=True)
        texts = [f" {text}" if text and is_after and not is_first else text for text, is_after, is_first in parts]
    return engine.tokenize(texts, with_spans=False, num_threads=1), np.array(num_invalid, np.int64)


@lean
def _copy(input_ids, cu_seqlens, wrong, tokens, lengths):
    """Copy all tokens except [CLS], [SEP] and those of skipped sentences; returns their number."""
    count = np.uint64(0)
    for sentence in range(len(lengths)):
        first, last = cu_seqlens[sentence] + 1, cu_seqlens[sentence + 1] - 1
        if wrong[sentence]:
            first = last
        lengths[sentence] = last - first
        own = np.uint64(first)
        for offset in range(np.uint64(last - first)):
            tokens[count + offset] = input_ids[own + offset]
        count += np.uint64(last - first)
    return np.int64(count)


@lean
def _hash(tokens, lengths, hashes, is_wide):
    """``is_wide``: tokens have 32 bits, so two fill the state; otherwise 16 bits, so four do."""
    start = np.uint64(0)
    for sentence in range(len(lengths)):
        state, end = _FIRST_STATE, start + np.uint64(lengths[sentence])
        while is_wide and start + _TWO <= end:
            one, two = np.uint64(tokens[start]), np.uint64(tokens[start + _ONE])
            state = (state ^ one ^ two << np.uint64(32)) * _FACTOR
            state ^= state >> np.uint64(32)
            start += _TWO
        while not is_wide and start + _FOUR <= end:  # four tokens per step, the fewest that keep up with the tokenizer
            one, two = np.uint64(tokens[start]), np.uint64(tokens[start + _ONE])
            three, four = np.uint64(tokens[start + _TWO]), np.uint64(tokens[start + _THREE])
            state = (state ^ one ^ two << np.uint64(16) ^ three << np.uint64(32) ^ four << np.uint64(48)) * _FACTOR
            state ^= state >> np.uint64(32)
            start += _FOUR
        while start < end:
            state = (state ^ np.uint64(tokens[start])) * _FACTOR
            start += _ONE
        state = (state ^ (state >> np.uint64(30))) * _MIX_A
        state = (state ^ (state >> np.uint64(27))) * _MIX_B
        hashes[sentence] = state ^ (state >> np.uint64(31))


@lean
def _take(tokens, lengths, chosen, taken):
    start, count = np.int64(0), np.int64(0)
    for sentence in range(len(lengths)):
        if chosen[sentence]:
            for offset in range(lengths[sentence]):
                taken[count + offset] = tokens[start + offset]
            count += lengths[sentence]
        start += lengths[sentence]
