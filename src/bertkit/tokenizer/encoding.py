"""Tokens of one or two texts to Encodings: special tokens, pairs, and what to do with a text that is too long."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bertkit.errors import OverLengthError, UsageError

OnLong = Literal["error", "truncate", "window"]
"""What to do with a text that exceeds ``max_length``: refuse it, cut its end off, or slide a window over it."""

Span = tuple[int, int]
"""Start and end (exclusive) in characters of the original text, or in positions of an Encoding."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """The tokens of one text, without special tokens; ``n`` of them."""

    input_ids: np.ndarray  # (n,) int32
    offsets: np.ndarray  # (n, 2) int32, characters of the original text, end exclusive
    word_ids: np.ndarray  # (n,) int32, running number of the word each piece is from

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, part: slice) -> "Pieces":
        return Pieces(self.input_ids[part], self.offsets[part], self.word_ids[part])

    def span(self) -> Span | None:
        """Characters from the first piece to the last, None when there is no piece."""
        return (int(self.offsets[0, 0]), int(self.offsets[-1, 1])) if len(self) else None


@dataclass(frozen=True, eq=False)
class Encoding:
    """One sequence as BERT reads it: ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``; ``n`` tokens.

    Offsets, word ids and the account of what was cut stay with the ids, so that a prediction can point back into the
    user's own text.
    """

    input_ids: np.ndarray  # (n,) int32
    token_type_ids: np.ndarray  # (n,) int32, 0 for [CLS] A [SEP], 1 for B [SEP]
    special_tokens_mask: np.ndarray  # (n,) bool, True for the [CLS] and [SEP] that were added
    offsets: np.ndarray  # (n, 2) int32, characters of the original text; (0, 0) for special tokens
    word_ids: np.ndarray  # (n,) int32, -1 for special tokens; counted anew in text B
    num_tokens_cut: int = 0  # tokens lost to truncation
    cut_spans: tuple[Span | None, ...] = ()  # per text, the characters that were cut
    text_index: int = 0  # which text (or pair) of the call this is, or is a window of
    owned: Span = (0, 0)  # positions this sequence answers for; the windows of a text own each token exactly once

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class Layout:
    """How long sequences may be and what happens to longer ones."""

    max_length: int | None = None  # tokens, special tokens included; None: no limit
    on_long: OnLong = "error"
    stride: int | None = None  # tokens from one window's start to the next; None: half a window

    def __post_init__(self) -> None:
        if self.on_long not in ("error", "truncate", "window"):
            raise UsageError(f"on_long={self.on_long!r}: expected 'error', 'truncate' or 'window'")
        if self.max_length is not None and self.max_length < 3:
            raise UsageError(f"max_length={self.max_length}: [CLS], [SEP] and one token need at least 3")
        if self.stride is not None and self.on_long != "window":
            raise UsageError(f"stride={self.stride} goes with on_long='window', on_long is {self.on_long!r}")
        if self.stride is not None and self.stride < 1:
            raise UsageError(f"stride={self.stride}: a window must advance by at least 1 token")


def assemble(
    a: Pieces, b: Pieces | None, cls_id: int, sep_id: int, layout: Layout, text_index: int, shown_index: int
) -> list[Encoding]:
    """Put special tokens around one text or a pair, applying the over-length policy; errors name ``shown_index``.

    Returns one Encoding, or with ``on_long="window"`` as many as it takes.

    Raises:
        OverLengthError: too long under ``"error"``, or text A leaves no room for a window over B.
    """
    num_special = 2 if b is None else 3
    length = len(a) + (0 if b is None else len(b)) + num_special
    if layout.max_length is None or length <= layout.max_length:
        return [_join(a, b, cls_id, sep_id, text_index)]
    room = layout.max_length - num_special
    if layout.on_long == "error":
        raise OverLengthError(
            f"text {shown_index} has {length} tokens, {length - layout.max_length} more than max_length "
            f"{layout.max_length}: shorten it, or choose on_long='truncate' or 'window'"
        )
    if layout.on_long == "truncate":
        return [_truncated(a, b, cls_id, sep_id, room, text_index)]
    if b is not None and room - len(a) < 1:
        raise OverLengthError(
            f"text A of pair {shown_index} has {len(a)} tokens and leaves no room for text B within max_length "
            f"{layout.max_length}: shorten A"
        )
    return _windows(a, b, cls_id, sep_id, room, layout.stride, text_index)


def _join(a: Pieces, b: Pieces | None, cls_id: int, sep_id: int, text_index: int) -> Encoding:
    """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]; owns all it holds."""
    parts = [a] if b is None else [a, b]
    n = 1 + sum(len(part) + 1 for part in parts)
    input_ids = np.full(n, sep_id, np.int32)
    input_ids[0] = cls_id
    token_type_ids = np.zeros(n, np.int32)
    special_tokens_mask = np.ones(n, np.bool_)
    offsets = np.zeros((n, 2), np.int32)
    word_ids = np.full(n, -1, np.int32)
    start = 1
    for part in parts:
        end = start + len(part)
        input_ids[start:end] = part.input_ids
        special_tokens_mask[start:end] = False
        offsets[start:end] = part.offsets
        word_ids[start:end] = part.word_ids
        start = end + 1
    if b is not None:
        token_type_ids[len(a) + 2 :] = 1
    return Encoding(
        input_ids,
        token_type_ids,
        special_tokens_mask,
        offsets,
        word_ids,
        cut_spans=(None,) * len(parts),
        text_index=text_index,
        owned=(0, n),
    )


def _truncated(a: Pieces, b: Pieces | None, cls_id: int, sep_id: int, room: int, text_index: int) -> Encoding:
    keep_a, keep_b = (room, 0) if b is None else _longest_first(len(a), len(b), room)
    kept = _join(a[:keep_a], None if b is None else b[:keep_b], cls_id, sep_id, text_index)
    cut = [a[keep_a:]] if b is None else [a[keep_a:], b[keep_b:]]
    return replace(kept, num_tokens_cut=sum(map(len, cut)), cut_spans=tuple(part.span() for part in cut))


def _longest_first(num_a: int, num_b: int, room: int) -> tuple[int, int]:
    """Cut the longer text first, then both alike; an odd token stays with the longer one.

    The published tokenizer's rule (tokenizers, ``TruncationStrategy::LongestFirst``).
    """
    shorter = min(num_a, num_b)
    longer = room - shorter
    if longer < shorter:
        shorter, longer = room // 2, room - room // 2
    return (longer, shorter) if num_a > num_b else (shorter, longer)


def _windows(
    a: Pieces, b: Pieces | None, cls_id: int, sep_id: int, room: int, stride: int | None, text_index: int
) -> list[Encoding]:
    """Windows over A, or over B with all of A before each (a question before each part of its context)."""
    text, size = (a, room) if b is None else (b, room - len(a))
    stride = max(1, size // 2) if stride is None else stride
    if stride > size:
        raise UsageError(f"stride={stride} would skip tokens: a window holds {size} of them here")
    starts = range(0, len(text) - size + stride, stride)
    borders = [0, *(_border(text, start, start - stride + size) for start in starts[1:]), len(text)]
    before = 1 if b is None else len(a) + 2  # position of the first window token
    windows = []
    for number, start in enumerate(starts):
        part = text[start : start + size]
        whole = (
            _join(part, None, cls_id, sep_id, text_index) if b is None else _join(a, part, cls_id, sep_id, text_index)
        )
        first, last = number == 0, number == len(starts) - 1
        owned = (
            0 if first else before + borders[number] - start,
            len(whole) if last else before + borders[number + 1] - start,
        )
        windows.append(replace(whole, owned=owned))
    return windows


def _border(text: Pieces, overlap_start: int, overlap_end: int) -> int:
    """Where one window's ownership ends and the next one's begins: mid-overlap, at the start of a word if it can.

    Each token so belongs to the window that shows it the most context (the "max context" rule of the BERT paper's
    SQuAD code).
    """
    middle = (overlap_start + overlap_end) // 2
    border = middle
    while border > overlap_start and text.word_ids[border] == text.word_ids[border - 1]:
        border -= 1
    return border if text.word_ids[border] != text.word_ids[border - 1] else middle
