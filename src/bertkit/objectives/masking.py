"""Masking for masked language modeling: tokens, whole words or spans.

In each sequence ``round(rate * seqlen)`` positions, at least one, never [CLS] or [SEP], are predicted; 80 % of them
become [MASK], 10 % stay, 10 % become a random token (Devlin et al. 2018, section 3.1; google-research/bert,
create_pretraining_data.py, where the length counts [CLS] and [SEP] and the replacement may be any entry).

Three ways to choose them: single tokens; whole words, where all pieces of a word are chosen or, if they are too many,
none, and each piece is replaced independently (the published whole-word models); spans, runs of whole words of random
length, replaced alike (Joshi et al. 2019, "SpanBERT", section 3.1). The number of words of a span is drawn from the
geometric distribution with p = 0.2, restricted to 1 to 10: 3.8 words on average (facebookresearch/SpanBERT,
pretraining/fairseq/data/masking.py).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from bertkit.compiled import compiled
from bertkit.errors import UsageError
from bertkit.objectives.sequences import Sequences, SpecialIds
from bertkit.randomness import below, key_of, uniform

MaskUnit = Literal["token", "word", "span"]

_UP_TO = 1 - 0.8 ** np.arange(1, 11)  # share of the geometric distribution up to a length of 1, 2, ..., 10 words
_SPAN_LENGTHS = _UP_TO[:-1] / _UP_TO[-1]  # share of the spans of at most 1, 2, ..., 9 words
_POSITIONS, _TOKENS = 0, 1  # the two random streams of a sequence


class Masked(NamedTuple):
    """Masked sequences with their targets."""

    input_ids: np.ndarray  # (T,) int32, input of the model
    positions: np.ndarray  # (P,) int64, positions to predict, ascending
    labels: np.ndarray  # (P,) int64, original tokens at these positions
    draws: np.ndarray | None = None  # (P,) float64, as in `PretrainingBatch`


class _Rules(NamedTuple):
    by_word: bool
    by_span: bool
    masked: float
    kept: float


@dataclass(frozen=True, eq=False)
class Masking:
    """Masking of sequences of one vocabulary.

    Args:
        continues_word: (vocab_size,) bool, the entries that continue a word.
        seed: the mask of a sequence is a function of (seed, epoch, index).
        replacement: of a draw from 0 to 1: below the first number the token becomes [MASK], below the second it stays,
            above it becomes any token.
    """

    special: SpecialIds
    continues_word: np.ndarray
    unit: MaskUnit = "token"
    seed: int = 0
    replacement: tuple[float, float] = (0.8, 0.9)

    def __post_init__(self) -> None:
        if self.unit not in get_args(MaskUnit):
            raise UsageError(f"mask_unit={self.unit!r}: expected one of {', '.join(get_args(MaskUnit))}")

    def __call__(self, sequences: Sequences, rate: float, epoch: int, indices: np.ndarray) -> Masked:
        """Mask the sequences with (B,) int64 ``indices`` in ``epoch``, at a rate between 0 and 1 (exclusive).

        Raises:
            UsageError: a rate outside that range.
        """
        if not 0 < rate < 1:
            raise UsageError(f"mask_rate={rate}: expected a share above 0 and below 1")
        seqlens = np.diff(sequences.cu_seqlens)
        wanted = np.maximum(1, np.rint(seqlens * rate).astype(np.int64))  # rint and Python's round: halves to even
        input_ids = sequences.input_ids.copy()
        positions = np.empty(wanted.sum(), np.int64)
        rules = _Rules(self.unit != "token", self.unit == "span", *self.replacement)
        number = _mask(
            input_ids, sequences.cu_seqlens, wanted, self.special, self.continues_word, rules, self.seed, epoch,
            indices, positions,
        )  # fmt: skip
        positions = positions[:number]
        return Masked(input_ids, positions, sequences.input_ids[positions].astype(np.int64))


def continues_word(tokens: tuple[str, ...]) -> np.ndarray:
    """(vocab_size,) bool, True for WordPiece entries that continue a word, such as "##ing"."""
    return np.array([token.startswith("##") and len(token) > 2 for token in tokens])


@compiled
def _mask(input_ids, cu_seqlens, wanted, special, continues, rules, seed, epoch, indices, positions):
    """Choose positions and replace their tokens; returns the number of positions."""
    longest = 0
    for i in range(len(indices)):
        longest = max(longest, cu_seqlens[i + 1] - cu_seqlens[i])
    starts = np.empty(longest + 1, np.int64)  # of the units: tokens or words
    order = np.empty(longest, np.int64)
    is_chosen = np.zeros(longest, np.bool_)
    total = 0
    for i in range(len(indices)):
        first, end = cu_seqlens[i], cu_seqlens[i + 1]
        ids = input_ids[first:end]
        key = key_of(seed, epoch, indices[i])
        num_units = _find_units(ids, special, continues, rules.by_word, starts)
        is_chosen[: len(ids)] = False
        if rules.by_span:
            _choose_spans(ids, special, starts, num_units, wanted[i], key_of(key, _POSITIONS, 0), is_chosen)
        else:
            _choose_units(starts, num_units, wanted[i], key_of(key, _POSITIONS, 0), order, ids, special, is_chosen)
        token_key = key_of(key, _TOKENS, 0)
        drawn = 0.0
        for index in range(len(ids)):
            if not is_chosen[index]:
                continue
            if not (rules.by_span and index and is_chosen[index - 1]):  # the tokens of a span are replaced alike
                drawn = uniform(token_key, 2 * index)
            if drawn < rules.masked:
                ids[index] = special.mask
            elif drawn >= rules.kept:
                ids[index] = below(token_key, 2 * index + 1, len(continues))
            positions[total] = first + index
            total += 1
    return total


@compiled
def _find_units(ids, special, continues, is_word, starts):
    """The start of each unit, and finally the end of the last; a unit extends to the next start or to a [CLS] or
    [SEP]. Returns the number of units."""
    number = 0
    after_special = True
    for index in range(len(ids)):
        if ids[index] == special.cls or ids[index] == special.sep:
            after_special = True
            continue
        if after_special or not (is_word and continues[ids[index]]):
            starts[number] = index
            number += 1
        after_special = False
    starts[number] = len(ids)
    return number


@compiled
def _end_of(unit, starts, ids, special):
    end = starts[unit] + 1
    while end < starts[unit + 1] and ids[end] != special.cls and ids[end] != special.sep:
        end += 1
    return end


@compiled
def _choose_units(starts, num_units, wanted, key, order, ids, special, is_chosen):
    """Choose units in random order until ``wanted`` positions are chosen, skipping units that would exceed it."""
    for unit in range(num_units):
        order[unit] = unit
    chosen = 0
    for turn in range(num_units):
        if chosen >= wanted:
            break
        other = turn + below(key, turn, num_units - turn)
        order[turn], order[other] = order[other], order[turn]
        start, end = starts[order[turn]], _end_of(order[turn], starts, ids, special)
        if chosen + end - start > wanted:
            continue
        is_chosen[start:end] = True
        chosen += end - start


@compiled
def _choose_spans(ids, special, starts, num_units, wanted, key, is_chosen):
    """Choose spans that start at random words until ``wanted`` positions are chosen or none are left."""
    chosen = turn = 0
    while chosen < wanted and turn < 16 * (wanted + num_units) and num_units:
        length = 1 + np.searchsorted(_SPAN_LENGTHS, uniform(key, 2 * turn + 1), side="right")
        unit = below(key, 2 * turn, num_units)
        turn += 1
        if is_chosen[starts[unit]]:
            continue
        for word in range(unit, min(unit + length, num_units)):
            start, end = starts[word], _end_of(word, starts, ids, special)
            if is_chosen[start] or chosen >= wanted or (chosen and chosen + end - start > wanted):
                break
            stop = min(end, start + wanted - chosen)
            is_chosen[start:stop] = True
            chosen += stop - start
            if word + 1 < num_units and end != starts[word + 1]:  # a [SEP] lies between
                break
