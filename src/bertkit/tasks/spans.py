"""Best spans of texts encoded in windows, with each span scored in exactly one window.

Several windows may contain a span. It is scored in the window with the most context on the span's shorter side, or the
first of several: the "max context" rule of google-research/bert ``run_squad.py``, for the span as a whole. So no span
is counted twice or lost. Shape letters: S windows, N texts, T tokens, K candidates.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import lean, lean_part
from bertkit.tokenizer import Encodings


class Windows(NamedTuple):
    """Location of the second texts of pairs in their sequences, and the part in each window."""

    first: np.ndarray  # (S,) int64 index of their first token among all T
    length: np.ndarray  # (S,) int64 number of their tokens
    begins: np.ndarray  # (S,) int64 number of tokens of the same text before this window
    cu_windows: np.ndarray  # (N + 1,) int64 first window of each text


class BestSpans(NamedTuple):
    """The candidates of each text by score, best first; missing ones have score minus infinity."""

    scores: np.ndarray  # (N, K) float64
    starts: np.ndarray  # (N, K) int64 indices among all T tokens
    ends: np.ndarray  # (N, K) int64, index of the last token
    totals: np.ndarray  # (N,) float64 log-sum-exp of the scores of all spans


def windows_of(encodings: Encodings, num_texts: int) -> Windows:
    """Locate the second texts of ``num_texts`` pairs."""
    special, after = np.flatnonzero(encodings.special_tokens_mask), encodings.cu_seqlens[1:] - 1  # the last [SEP]
    before = special[np.searchsorted(special, after) - 1]
    first, length = before + 1, after - before - 1
    start = first - encodings.cu_seqlens[:-1]
    own_start = np.maximum(encodings.owned[:, 0], start)
    num_owned = np.minimum(encodings.owned[:, 1], encodings.seqlens - 1) - own_start
    cu_windows = np.searchsorted(encodings.text_index, np.arange(num_texts + 1))
    owned_before = np.cumsum(num_owned) - num_owned
    owned_before -= owned_before[cu_windows[:-1]][encodings.text_index]
    return Windows(first, length, owned_before - (own_start - start), cu_windows)


def best_spans(
    start_logits: np.ndarray, end_logits: np.ndarray, windows: Windows, max_length: int, num: int
) -> BestSpans:
    """The ``num`` spans of at most ``max_length`` tokens with the highest sum of start and end logit.

    Args:
        start_logits, end_logits: (T,) float32; minus infinity where no span may start or end.
    """
    num_texts = len(windows.cu_windows) - 1
    best = BestSpans(
        np.full((num_texts, num), -np.inf),
        np.zeros((num_texts, num), np.int64),
        np.zeros((num_texts, num), np.int64),
        np.full(num_texts, -np.inf),
    )
    starts, ends = (np.ascontiguousarray(logits, np.float32) for logits in (start_logits, end_logits))
    _find(starts, ends, *windows, np.int64(max_length), *best)
    return best


@lean
def _find(starts, ends, first, length, begins, cu_windows, max_length, scores, start_tokens, end_tokens, totals):
    for text in range(len(cu_windows) - 1):
        highest, total = -np.inf, 0.0
        for window in range(cu_windows[text], cu_windows[text + 1]):
            for i in range(length[window]):
                start = first[window] + i
                for j in range(i, min(length[window], i + max_length)):
                    left, right = begins[window] + i, begins[window] + j
                    if not _answers_for(window, left, right, cu_windows[text], cu_windows[text + 1], length, begins):
                        continue
                    end = first[window] + j
                    score = np.float64(starts[start]) + np.float64(ends[end])
                    if score == -np.inf:
                        continue
                    if score > highest:
                        total = total * np.exp(highest - score) + 1.0
                        highest = score
                    else:
                        total += np.exp(score - highest)
                    if score > scores[text, -1]:
                        _insert(scores[text], start_tokens[text], end_tokens[text], score, start, end)
        if total > 0.0:
            totals[text] = highest + np.log(total)


@lean_part
def _answers_for(window, left, right, first_window, end_window, length, begins):
    """Whether a span, from token ``left`` to ``right`` of its text, is scored in this window."""
    context = min(left - begins[window], begins[window] + length[window] - 1 - right)
    other = window - 1
    while other >= first_window and begins[other] + length[other] > right:
        if min(left - begins[other], begins[other] + length[other] - 1 - right) >= context:
            return False
        other -= 1
    other = window + 1
    while other < end_window and begins[other] <= left:
        if min(left - begins[other], begins[other] + length[other] - 1 - right) > context:
            return False
        other += 1
    return True


@lean_part
def _insert(scores, start_tokens, end_tokens, score, start, end):
    """Insert a span into the ordered list of the best, and drop the last of them."""
    index = len(scores) - 1
    while index > 0 and scores[index - 1] < score:
        scores[index] = scores[index - 1]
        start_tokens[index] = start_tokens[index - 1]
        end_tokens[index] = end_tokens[index - 1]
        index -= 1
    scores[index], start_tokens[index], end_tokens[index] = score, start, end
