"""Tokens of texts, and the input sequences of the model that are made of them.

`Pieces` is what a tokenizing engine returns; `Encoding` is one input sequence; `Encodings` are many of them, end to end
in one array per field. All keep which characters and words of the text each token stands for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from bertkit.errors import UsageError
from bertkit.tokenizer.ragged import ranges

Span = tuple[int, int]
"""Start and end (exclusive) in characters of the original text, or in tokens of an Encoding."""

_WHITE_SPACE = np.array([code for code in range(0x3001) if chr(code).isspace()], np.uint32)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Concatenated tokens of texts, with [CLS] and [SEP] around each; N texts, T tokens in all."""

    input_ids: np.ndarray  # (T,) int32
    cu_seqlens: np.ndarray  # (N + 1,) int64, cumulative lengths from 0 to T
    spans: np.ndarray | None  # (T, 3) int32: start and end in characters of the original text, number of the word;
    # (0, 0, -1) for special tokens

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1


def joined(parts: Sequence[Pieces]) -> Pieces:
    """Concatenate the texts of all ``parts``."""
    if len(parts) == 1:
        return parts[0]
    firsts = np.cumsum([0, *(len(part.input_ids) for part in parts)])
    cu_seqlens = [part.cu_seqlens[:-1] + first for part, first in zip(parts, firsts[:-1], strict=True)]
    spans = [part.spans for part in parts if part.spans is not None]
    return Pieces(
        np.concatenate([part.input_ids for part in parts]),
        np.concatenate([*cu_seqlens, firsts[-1:]]),
        np.concatenate(spans) if spans else None,
    )


@dataclass(frozen=True, eq=False)
class Encoding:
    """One input sequence of the model: ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``; ``n`` tokens.

    Offsets, word ids and counts of what was cut are kept with the ids, so that predictions can refer to the original
    text. Usually a text, or a pair, is one sequence; a text that is too long may become several overlapping windows,
    and ``owned`` then says which tokens of a window count, so that each token of the text counts once.
    """

    input_ids: np.ndarray  # (n,) int32
    token_type_ids: np.ndarray  # (n,) int32, 0 for [CLS] A [SEP], 1 for B [SEP]
    special_tokens_mask: np.ndarray  # (n,) bool, True for the [CLS] and [SEP] that were added
    offsets: np.ndarray  # (n, 2) int32, characters of the original text; (0, 0) for special tokens
    word_ids: np.ndarray  # (n,) int32, number of the word from 0, in text B again from 0; -1 for special tokens
    num_tokens_cut: int = 0  # number of tokens lost to truncation
    cut_spans: tuple[Span | None, ...] = ()  # for A, and B if there is one: the characters that were cut; None: nothing
    text_index: int = 0  # index of this text (or pair), among those that were encoded in one call
    owned: Span = (0, 0)  # the tokens that count: all of them, (0, n), or in a window those that no other window owns
    num_unknown: int = 0  # number of [UNK] among them, which stand for words that the vocabulary cannot spell

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, eq=False)
class Encodings(Sequence[Encoding]):
    """S concatenated sequences with T tokens in total; items are Encodings, created on access."""

    input_ids: np.ndarray  # (T,) int32
    token_type_ids: np.ndarray  # (T,) int32
    special_tokens_mask: np.ndarray  # (T,) bool
    spans: np.ndarray | None  # (T, 3) int32: start, end, word; (0, 0, -1) for special tokens; None: not requested
    cu_seqlens: np.ndarray  # (S + 1,) int64, cumulative lengths from 0 to T
    num_tokens_cut: np.ndarray  # (S,) int64
    cut_spans: np.ndarray  # (S, 1 or 2 texts, 2) int64, (-1, -1) where nothing was cut
    text_index: np.ndarray  # (S,) int64
    owned: np.ndarray  # (S, 2) int64
    unknown_id: int = -1  # id of [UNK]; -1 if the vocabulary has none
    num_of_prompt: np.ndarray | None = None  # (S,) int64 known tokens of the prompt before each text; None: no prompts

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    @cached_property
    def seqlens(self) -> np.ndarray:
        """(S,) int64 tokens of each sequence."""
        return np.diff(self.cu_seqlens)

    @cached_property
    def num_unknown(self) -> np.ndarray:
        """(S,) int64 number of [UNK] among the tokens that each sequence owns."""
        tokens = np.flatnonzero(self.input_ids == self.unknown_id)
        if not len(tokens):
            return np.zeros(len(self), np.int64)
        sequences = np.searchsorted(self.cu_seqlens, tokens, "right") - 1
        positions = tokens - self.cu_seqlens[sequences]
        first, end = self.owned[sequences].T
        return np.bincount(sequences[(positions >= first) & (positions < end)], minlength=len(self))

    def are_empty(self) -> np.ndarray:
        """(S,) bool: sequences of a whole text without a known token after its prompt: empty, or only [UNK]."""
        num_special = int(np.count_nonzero(self.special_tokens_mask[: self.cu_seqlens[:2][-1]]))  # as in all sequences
        first, end = self.owned.T
        is_whole = (first == 0) & (end == self.seqlens) & (self.num_tokens_cut == 0)
        num_known = self.seqlens - self.num_unknown - num_special
        return is_whole & (num_known == (0 if self.num_of_prompt is None else self.num_of_prompt))

    @property
    def num_texts_cut(self) -> int:
        """Number of truncated texts, regardless of the number of their sequences."""
        return len(set(self.text_index[self.num_tokens_cut > 0].tolist()))

    @property
    def offsets(self) -> np.ndarray:
        """(T, 2) int32 characters of the original text.

        Raises:
            UsageError: encoded without offsets.
        """
        return self._spans()[:, :2]

    @property
    def word_ids(self) -> np.ndarray:
        """(T,) int32 words of the original text; as ``offsets``."""
        return self._spans()[:, 2]

    def tight_offsets(self, tokens: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        """(n, 2) int64 ``offsets`` of some tokens without white space at their ends, which byte-level BPE and
        SentencePiece keep in a token; both offsets are equal for a token of white space only.

        Args:
            tokens: (n,) indices among the T tokens, without special tokens.
            texts: the encoded texts; for tokens of second texts, the second texts.
        """
        of_token = self.text_index[np.searchsorted(self.cu_seqlens, tokens, "right") - 1]
        before = np.cumsum([0, *map(len, texts)])[of_token]
        codes = np.frombuffer("".join([*texts, "."]).encode("utf-32-le"), np.uint32)  # a token may start at the end
        starts, ends = (self.offsets[tokens, side] + before for side in (0, 1))
        while (moved := (starts < ends) & np.isin(codes[starts], _WHITE_SPACE)).any():
            starts += moved
        while (moved := (starts < ends) & np.isin(codes[ends - 1], _WHITE_SPACE)).any():
            ends -= moved
        return np.stack([starts - before, ends - before], axis=1)

    def _spans(self) -> np.ndarray:
        if self.spans is None:
            raise UsageError("encoded with with_offsets=False: there are no offsets and word ids, only ids")
        return self.spans

    @overload
    def __getitem__(self, index: int) -> Encoding: ...
    @overload
    def __getitem__(self, index: slice) -> "Encodings": ...
    def __getitem__(self, index: int | slice) -> "Encoding | Encodings":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        index = range(len(self))[index]  # from the end if negative, and an IndexError beyond it
        tokens = slice(self.cu_seqlens[index], self.cu_seqlens[index + 1])
        first, last = self.owned[index].tolist()
        return Encoding(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            self.special_tokens_mask[tokens],
            self.offsets[tokens],
            self.word_ids[tokens],
            num_tokens_cut=int(self.num_tokens_cut[index]),
            cut_spans=tuple(None if start < 0 else (start, end) for start, end in self.cut_spans[index].tolist()),
            text_index=int(self.text_index[index]),
            owned=(first, last),
            num_unknown=int(np.count_nonzero(self.input_ids[tokens][first:last] == self.unknown_id)),
        )

    def __iter__(self) -> Iterator[Encoding]:
        return map(self.__getitem__, range(len(self)))

    def after_prompts(self, num_known: ArrayLike) -> "Encodings":
        """These encodings of texts with prompts.

        Args:
            num_known: known tokens of the prompt of each text, as in `Tokenizer.num_known`; or one for all.
        """
        return replace(self, num_of_prompt=np.broadcast_to(np.asarray(num_known, np.int64), len(self)))

    def take(self, indices: np.ndarray) -> "Encodings":
        """The sequences at ``indices``, in that order."""
        seqlens = self.seqlens[indices]
        cu_seqlens = np.zeros(len(indices) + 1, np.int64)
        np.cumsum(seqlens, out=cu_seqlens[1:])
        tokens = ranges(self.cu_seqlens[:-1][indices], seqlens)
        return Encodings(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            self.special_tokens_mask[tokens],
            None if self.spans is None else self.spans[tokens],
            cu_seqlens,
            self.num_tokens_cut[indices],
            self.cut_spans[indices],
            self.text_index[indices],
            self.owned[indices],
            self.unknown_id,
            None if self.num_of_prompt is None else self.num_of_prompt[indices],
        )

    def between(self, start: int, end: int) -> "Encodings":
        """The sequences from ``start`` to ``end`` (exclusive), without copying."""
        tokens = slice(self.cu_seqlens[start], self.cu_seqlens[end])
        return Encodings(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            self.special_tokens_mask[tokens],
            None if self.spans is None else self.spans[tokens],
            self.cu_seqlens[start : end + 1] - self.cu_seqlens[start],
            self.num_tokens_cut[start:end],
            self.cut_spans[start:end],
            self.text_index[start:end],
            self.owned[start:end],
            self.unknown_id,
            None if self.num_of_prompt is None else self.num_of_prompt[start:end],
        )
