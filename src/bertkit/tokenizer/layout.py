"""Sequences from pieces: special tokens, pairs, and handling of texts that are too long."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertkit.errors import OverLengthError, UsageError, checked_count
from bertkit.tokenizer.encoding import Encodings, Pieces
from bertkit.tokenizer.ragged import ranges

OnLong = Literal["error", "truncate", "window"]
"""What to do with a text that exceeds ``max_length``: refuse it, cut it, or slide a window over it."""

Side = Literal["right", "left"]
"""Where a text is cut: at its end, or at its start."""

_NO_SPAN = (0, 0, -1)
"""Start, end and word of a special token."""


@dataclass(frozen=True)
class Layout:
    """Maximum sequence length and over-length policy."""

    max_length: int | None = None  # tokens, special tokens included; None: no limit
    on_long: OnLong = "error"
    stride: int | None = None  # tokens from the start of one window to the next; None: half a window

    def __post_init__(self) -> None:
        if self.on_long not in ("error", "truncate", "window"):
            raise UsageError(f"on_long={self.on_long!r}: expected 'error', 'truncate' or 'window'")
        if self.max_length is not None:
            try:
                checked_count("max_length", self.max_length, 3)
            except UsageError as error:
                raise UsageError(f"{error}, for [CLS], [SEP] and one token") from None
        if self.stride is not None and self.on_long != "window":
            raise UsageError(f"stride={self.stride} requires on_long='window', got {self.on_long!r}")
        if self.stride is not None:
            checked_count("stride", self.stride)


@dataclass(frozen=True)
class PairTemplate:
    """The special tokens and types of a pair.

    BERT has ``[CLS] A [SEP] B [SEP]`` with type 1 from B on; XLM-R, which has other names for them,
    ``[CLS] A [SEP] [SEP] B [SEP]`` with only type 0. A single text is ``[CLS] A [SEP]`` in both. Qwen3-Embedding has no
    [CLS], and reads the last token.
    """

    num_separators: int = 1  # between the two texts
    second_type: int = 1  # token type of B and of the separator after it
    wraps: bool = True  # False: no special tokens around a text, as in GPT-2
    has_first: bool = True  # False: no [CLS]


BERT_PAIRS, TWO_SEPARATORS = PairTemplate(), PairTemplate(num_separators=2, second_type=0)
BARE_TEXT = PairTemplate(num_separators=0, second_type=0, wraps=False)


@dataclass(frozen=True, eq=False)
class _Sequences:
    """Assignment of pieces to sequences; S sequences of P = 1 or 2 texts each."""

    parts: np.ndarray  # (S, P, 2) int64, first piece and the piece after the last
    text_index: np.ndarray  # (S,) int64
    owned: np.ndarray | None = None  # (S, 2) int64; None: all


def assemble(
    pieces: Pieces,
    num_parts: int,
    cls_id: int,
    sep_id: int,
    template: PairTemplate,
    layout: Layout,
    first_index: int,
    cut_side: Side = "right",
    unknown_id: int = -1,
) -> Encodings:
    """Put special tokens around each text or pair, applying the over-length policy.

    Args:
        pieces: of all texts, then, if ``num_parts`` is 2, of the second texts of all pairs. Windows require spans.
        first_index: index of the first text in errors.
        cut_side: where each text is cut under ``"truncate"``.
        unknown_id: of [UNK], for counts of it; -1: there is none.

    Raises:
        OverLengthError: too long under ``"error"``, or text A leaves no room for a window over B.
        UsageError: ``max_length`` has no room for the special tokens of a pair.
    """
    longest = np.diff(pieces.cu_seqlens).max(initial=0)
    if num_parts == 1 and template.has_first and (layout.max_length is None or longest <= layout.max_length):
        return _as_they_are(pieces, unknown_id)
    whole = np.stack(
        [pieces.cu_seqlens[:-1] + 1, pieces.cu_seqlens[1:] - 1], axis=1
    )  # (P * N, 2), without [CLS], [SEP]
    whole = whole.reshape(num_parts, -1, 2).swapaxes(0, 1)  # (N, P, 2)
    sequences = _Sequences(whole, np.arange(len(whole)))
    num_special = template.has_first + (1 if num_parts == 1 else 1 + template.num_separators)
    lengths = whole[:, :, 1] - whole[:, :, 0]  # (N, P)
    if layout.max_length is not None:
        too_long = lengths.sum(axis=1) + num_special > layout.max_length
        if too_long.any():
            room = layout.max_length - num_special
            if room < 0:
                raise UsageError(f"max_length={layout.max_length}: a pair has {num_special} special tokens")
            if layout.on_long == "error":
                index = int(too_long.argmax())
                length = int(lengths[index].sum()) + num_special
                problem = (
                    f"has {length} tokens, {length - layout.max_length} more than max_length {layout.max_length}: "
                    "shorten it, or choose on_long='truncate' or on_long='window'"
                )
                raise OverLengthError(f"text {first_index + index} {problem}", index, problem)
            if layout.on_long == "truncate":
                sequences = _truncated(whole, lengths, too_long, room, cut_side)
            else:
                sequences = _windows(pieces, whole, lengths, too_long, num_special, layout, first_index)
    return _encodings(pieces, whole, sequences, cls_id, sep_id, template, unknown_id)


def _as_they_are(pieces: Pieces, unknown_id: int) -> Encodings:
    """Single texts that fit: the engine already added [CLS] and [SEP]."""
    first, last = pieces.cu_seqlens[:-1], pieces.cu_seqlens[1:]
    special_tokens_mask = np.zeros(len(pieces.input_ids), np.bool_)
    special_tokens_mask[first] = True
    special_tokens_mask[last - 1] = True
    none = np.zeros(len(pieces), np.int64)
    return Encodings(
        pieces.input_ids, np.zeros(len(pieces.input_ids), np.int32), special_tokens_mask, pieces.spans,
        pieces.cu_seqlens, none, np.full((len(pieces), 1, 2), -1, np.int64), np.arange(len(pieces)),
        np.stack([none, last - first], axis=1), unknown_id,
    )  # fmt: skip


def _encodings(
    pieces: Pieces,
    whole: np.ndarray,
    sequences: _Sequences,
    cls_id: int,
    sep_id: int,
    template: PairTemplate,
    unknown_id: int,
) -> Encodings:
    """[CLS] A [SEP], or [CLS] A [SEP] B [SEP] with the special tokens and types of the template, end to end."""
    parts, num_first = sequences.parts, int(template.has_first)
    lengths = parts[:, :, 1] - parts[:, :, 0]  # (S, P)
    num_separators = np.array([template.num_separators, 1][-parts.shape[1] :])  # (P,) after each text
    seqlens = (lengths + num_separators).sum(axis=1) + num_first
    cu_seqlens = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(seqlens, out=cu_seqlens[1:])
    input_ids = np.empty(cu_seqlens[-1], np.int32)
    token_type_ids = np.zeros(cu_seqlens[-1], np.int32)
    special_tokens_mask = np.zeros(cu_seqlens[-1], np.bool_)
    ends = np.cumsum(lengths + num_separators, axis=1)  # (S, P)
    ends += cu_seqlens[:-1, None] + num_first - 1  # positions of the last [SEP]
    more = [ends[:, 0] - number for number in range(1, num_separators[0])]
    first = [(cu_seqlens[:-1], cls_id)] * num_first
    for positions, token_id in (*first, *((end, sep_id) for end in (ends, *more))):
        input_ids[positions] = token_id
        special_tokens_mask[positions] = True
    if parts.shape[1] == 2:
        types = np.tile([0, template.second_type], len(parts))
        with_special = lengths + num_separators + np.array([num_first, 0])
        token_type_ids = np.repeat(types, with_special.ravel()).astype(np.int32)
    lengths_of_parts, starts = lengths.ravel(), parts[:, :, 0].ravel()
    source = ranges(starts, lengths_of_parts)
    input_ids[~special_tokens_mask] = pieces.input_ids[source]
    spans = None
    if pieces.spans is not None:
        spans = np.empty((len(input_ids), 3), np.int32)
        spans[special_tokens_mask] = _NO_SPAN
        spans[~special_tokens_mask] = pieces.spans[source]
    owned = sequences.owned
    cut = np.zeros_like(lengths)
    if owned is None:
        owned = np.stack([np.zeros_like(seqlens), seqlens], axis=1)
        cut = whole[:, :, 1] - whole[:, :, 0] - lengths
    cut_spans = np.full(parts.shape, -1, np.int64)
    if pieces.spans is not None and cut.any():
        some = cut > 0
        at_end = parts[some, 0] == whole[some, 0]
        cut_spans[some, 0] = pieces.spans[np.where(at_end, parts[some, 1], whole[some, 0]), 0]
        cut_spans[some, 1] = pieces.spans[np.where(at_end, whole[some, 1], parts[some, 0]) - 1, 1]
    return Encodings(
        input_ids, token_type_ids, special_tokens_mask, spans, cu_seqlens, cut.sum(axis=1), cut_spans,
        sequences.text_index, owned, unknown_id,
    )  # fmt: skip


def _truncated(whole: np.ndarray, lengths: np.ndarray, too_long: np.ndarray, room: int, cut_side: Side) -> _Sequences:
    kept = lengths.copy()
    kept[too_long] = room if lengths.shape[1] == 1 else _longest_first(lengths[too_long], room)
    parts = whole.copy()
    if cut_side == "right":
        parts[:, :, 1] = whole[:, :, 0] + kept
    else:
        parts[:, :, 0] = whole[:, :, 1] - kept
    return _Sequences(parts, np.arange(len(whole)))


def _longest_first(lengths: np.ndarray, room: int) -> np.ndarray:
    """(n, 2) lengths of pairs cut to ``room``: the longer text first, then both alike; an odd token stays with the
    longer one.

    The published tokenizer's rule (tokenizers, ``TruncationStrategy::LongestFirst``).
    """
    shorter = lengths.min(axis=1)
    longer = room - shorter
    both_cut = longer < shorter
    shorter = np.where(both_cut, room // 2, shorter)
    longer = np.where(both_cut, room - room // 2, longer)
    a_is_longer = lengths[:, 0] > lengths[:, 1]
    return np.stack([np.where(a_is_longer, longer, shorter), np.where(a_is_longer, shorter, longer)], axis=1)


def _windows(
    pieces: Pieces,
    whole: np.ndarray,
    lengths: np.ndarray,
    too_long: np.ndarray,
    num_special: int,
    layout: Layout,
    first_index: int,
) -> _Sequences:
    """Windows over A, or over B with all of A before each (a question before each part of its context).

    Arrays of N texts, then of S windows.
    """
    assert layout.max_length is not None
    before = lengths[:, :-1].sum(axis=1) + num_special - 1  # position of a window's first token
    sizes = layout.max_length - 1 - before
    full = too_long & (sizes < 1)
    if full.any():
        index = int(full.argmax())
        problem = (
            f"has {lengths[index, 0]} tokens in text A and leaves no room for text B within max_length "
            f"{layout.max_length}: shorten A"
        )
        raise OverLengthError(f"pair {first_index + index} {problem}", index, problem)
    strides = np.maximum(1, sizes // 2) if layout.stride is None else np.full(len(whole), layout.stride)
    skipping = too_long & (strides > sizes)
    if skipping.any():
        size = sizes[skipping.argmax()]
        raise UsageError(f"stride={layout.stride} would skip tokens: a window holds {size} of them here")
    nums = np.where(too_long, -(-(lengths[:, -1] - sizes) // strides) + 1, 1)
    text = np.repeat(np.arange(len(whole)), nums)
    number = np.arange(len(text)) - np.repeat(np.cumsum(nums) - nums, nums)
    first, last = number == 0, number == nums[text] - 1
    parts = whole[text]  # (S, P, 2)
    parts[:, -1, 0] += number * strides[text]
    parts[:, -1, 1] = np.where(
        too_long[text], np.minimum(parts[:, -1, 0] + sizes[text], parts[:, -1, 1]), parts[:, -1, 1]
    )
    later = np.flatnonzero(~first)
    starts = parts[:, -1, 0]
    borders = np.zeros(len(text) + 1, np.int64)  # where the ownership of each window begins
    borders[later] = _borders(pieces, starts[later], starts[later] + (sizes - strides)[text[later]])
    begin = np.where(first, 0, before[text] + borders[:-1] - starts)
    seqlens = (parts[:, :, 1] - parts[:, :, 0]).sum(axis=1) + num_special
    end = np.where(last, seqlens, before[text] + borders[1:] - starts)
    return _Sequences(parts, text, np.stack([begin, end], axis=1))


def _borders(pieces: Pieces, overlap_starts: np.ndarray, overlap_ends: np.ndarray) -> np.ndarray:
    """Boundaries of ownership between windows: mid-overlap, at the start of a word if possible.

    So each token belongs to the window with the most context for it (the "max context" rule of the BERT paper's
    SQuAD code).
    """
    assert pieces.spans is not None
    words = pieces.spans[:, 2]
    starts_word = np.ones(len(words), np.bool_)
    starts_word[1:] = words[1:] != words[:-1]
    word_starts = np.maximum.accumulate(np.where(starts_word, np.arange(len(words)), 0))
    middles = (overlap_starts + overlap_ends) // 2
    borders = np.maximum(word_starts[middles], overlap_starts)
    return np.where(starts_word[borders], borders, middles)
