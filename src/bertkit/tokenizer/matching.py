"""Vocabulary trie, and longest-match-first splitting of words (Wu et al. 2016, section 4.1).

A trie is a tree of letters: the path from the root spells the entries, and following it as far as possible gives the
longest entry that starts a word without trying the shorter ones. Its edges are in one hash table, by node and letter.
"""

from collections.abc import Sequence

import numpy as np

from bertkit.compiled import lean, lean_inline
from bertkit.tokenizer.vocabulary import CONTINUATION

_START, _CONTINUATION = 0, 1
"""Nodes to start from: entries that start a word, and entries after "##"."""
_FIRST_FREE = 2

# An edge is a row of two numbers. Key: node << 21 | letter; 0 is an empty row, for no letter is 0. Value: in the lower
# half the target node, in the upper half the id of the entry that ends there plus one, or 0.
_LETTER_BITS = 21
_HASH = -7046029254386353131  # 2 ** 64 / golden ratio, made odd, as a signed number (Knuth, volume 3, section 6.4)


def build_trie(tokens: Sequence[str]) -> np.ndarray:
    """The trie of all ``tokens``, whose ids are their indices: (a power of 2, 2) int64 edges, as above.

    An entry that can never match is harmless: no path leads to it. One with NUL, which no text contains after cleaning,
    is left out: 0 is no letter.
    """
    starts = np.array([_CONTINUATION if continues(token) else _START for token in tokens], np.int64)
    spelled = [token[len(CONTINUATION) :] if continues(token) else token for token in tokens]
    spelled = ["" if "\0" in entry else entry for entry in spelled]
    bounds = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum([len(token) for token in spelled], out=bounds[1:])
    letters = np.frombuffer("".join(spelled).encode("utf-32-le", "surrogatepass"), np.uint32)
    num_edges = int(bounds[-1])  # upper bound; most entries share their first letters with others
    for _ in range(2):
        edges = np.zeros((1 << max(4, (3 * num_edges // 2).bit_length()), 2), np.int64)  # a third to two thirds full
        num_edges = _add_entries(edges, letters, bounds, starts)
    return edges


def continues(token: str) -> bool:
    return token.startswith(CONTINUATION) and token != CONTINUATION


@lean_inline
def _find(edges, node, letter):
    """Row of the edge from a node by a letter, or the empty row for it."""
    key = node << _LETTER_BITS | letter
    mask = len(edges) - 1
    row = ((key * _HASH) >> 32) & mask
    while edges[row, 0] != key and edges[row, 0] != 0:
        row = (row + 1) & mask
    return row


@lean
def _add_entries(edges, letters, bounds, starts):
    """Put entries into an empty trie; returns the number of edges."""
    next_node = _FIRST_FREE
    for token_id in range(len(starts)):
        node, row = starts[token_id], -1
        for at in range(bounds[token_id], bounds[token_id + 1]):
            row = _find(edges, node, np.int64(letters[at]))
            if edges[row, 0] == 0:
                edges[row, 0] = node << _LETTER_BITS | np.int64(letters[at])
                edges[row, 1] = next_node
                next_node += 1
            node = edges[row, 1] & 0xFFFFFFFF
        if row >= 0:
            edges[row, 1] |= (token_id + 1) << 32
    return next_node - _FIRST_FREE


@lean_inline
def longest_entry(word, start, length, edges):
    """The longest entry at letter ``start`` of a word.

    Args:
        word: (n, 2) int64, its letters in the first ``length`` of column 0.

    Returns:
        Its id, or -1, and the index of the letter after it.
    """
    node = np.int64(_CONTINUATION if start else _START)
    token_id, token_end = np.int64(-1), start
    for at in range(start, length):
        edge = edges[_find(edges, node, word[at, 0]), 1]
        if edge == 0:
            break
        if edge >> 32:
            token_id, token_end = (edge >> 32) - 1, at + 1
        node = edge & 0xFFFFFFFF
    return token_id, token_end


@lean_inline
def entry_of(letter, edges):
    """The id of the entry that is one letter, starting a word; or -1."""
    return (edges[_find(edges, np.int64(_START), letter), 1] >> 32) - 1
