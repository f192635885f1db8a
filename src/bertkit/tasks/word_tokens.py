"""Tokens of words, and the likeliest sequence of their labels. Shape letters: T tokens, W words, C labels."""

from collections.abc import Sequence

import numpy as np

from bertkit.tokenizer import Encodings
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.ragged import ranges


def first_pieces(
    texts: Sequence[str], words: Sequence[Sequence[Span]], encodings: Encodings
) -> tuple[np.ndarray, np.ndarray]:
    """(W,) int64 index of the first token that starts in each word of N texts, ignoring white space, among the T tokens
    of all sequences, in the window that owns it, -1 for a word without one; and (W,) int64 index of the word whose
    token holds the start of the word: its own index, except for a word inside the token of a word before."""
    lengths = encodings.owned[:, 1] - encodings.owned[:, 0]
    first = encodings.cu_seqlens[:-1] + encodings.owned[:, 0]
    tokens = ranges(first, lengths)  # each token of a text once
    numbers = np.repeat(encodings.text_index, lengths)
    real = ~encodings.special_tokens_mask[tokens]
    tokens, numbers = tokens[real], numbers[real]
    starts, ends = encodings.tight_offsets(tokens, texts).T
    real = starts < ends
    tokens, numbers, starts, ends = tokens[real], numbers[real], starts[real], ends[real]
    spans = np.array([span for of_text in words for span in of_text], np.int64).reshape(-1, 2)
    width = max(int(spans.max(initial=0)), int(starts.max(initial=0))) + 1
    order = np.argsort(keys := numbers * width + starts, kind="stable")
    keys = np.append(keys[order], np.iinfo(np.int64).max)
    of_word = np.repeat(np.arange(len(words)), [len(of_text) for of_text in words]) * width
    indices = np.searchsorted(keys, of_word + spans[:, 0])
    results = keys[indices] < of_word + spans[:, 1]
    word_of = np.arange(len(spans))
    if len(tokens):
        before = np.maximum(indices - 1, 0)  # the last token that starts before each word without one
        is_held = ~results & (indices > 0) & (numbers[order][before] * width == of_word)
        is_held &= ends[order][before] > spans[:, 0]
        holder = np.maximum(np.maximum.accumulate(np.where(results, word_of, -1)), 0)
        word_of = np.where(is_held & (of_word[holder] == of_word), holder, word_of)
    return np.where(results, np.append(tokens[order], -1)[indices], -1), word_of


def likeliest_path(scores: np.ndarray, may_follow: np.ndarray) -> np.ndarray:
    """(n,) the labels with the highest sum of (n, C) scores in which each may follow the previous one.

    Args:
        may_follow: (C + 1, C + 1) bool; row C is the start, column C the end (Viterbi 1967).
    """
    edge = scores.shape[1]
    allowed = np.where(may_follow, 0.0, -np.inf)
    best = scores[0] + allowed[edge, :edge]
    before = np.empty(scores.shape, np.int64)
    for index in range(1, len(scores)):
        total = best[:, None] + allowed[:edge, :edge]
        before[index] = total.argmax(axis=0)
        best = total.max(axis=0) + scores[index]
    path = np.empty(len(scores), np.int64)
    path[-1] = (best + allowed[:edge, edge]).argmax()
    for index in range(len(scores) - 1, 0, -1):
        path[index - 1] = before[index, path[index]]
    return path
