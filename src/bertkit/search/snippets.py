"""Snippets: the sentences of a passage with the most words of a query, with their offsets in the document."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bertkit.documents.passages import sentence_spans
from bertkit.search.words import word_spans, words

_LENGTH = 240


class Snippet(NamedTuple):
    """A part of a document."""

    text: str
    start: int  # characters of the document
    end: int


def snippet_of(
    text: str, start: int, weights: Mapping[str, float], words_of: Callable[[str], Iterable[str]] = words
) -> Snippet:
    """The consecutive sentences of at most 240 characters, or one longer sentence, with the largest total word weight;
    the first of equals.

    Args:
        text: text of the passage.
        start: its first character in the document.
        weights: weights of the words of the query.
        words_of: returns the words of a text that can be among them.
    """
    spans = sentence_spans(text) or [(0, len(text))]
    shared = [weights.keys() & set(words_of(text[first:last])) for first, last in spans]
    best, best_weight = spans[0], 0.0
    for index, (first, last) in enumerate(spans):
        if not shared[index]:
            continue
        seen: set[str] = set()
        for further in range(index, len(spans)):
            if further > index and spans[further][1] - first > _LENGTH:
                break
            seen |= shared[further]
            last = spans[further][1]
            weight = sum(weights[word] for word in seen)
            if weight > best_weight + 1e-12:
                best, best_weight = (first, last), weight
    return Snippet(text[slice(*best)], start + best[0], start + best[1])


def word_matches(
    part: Snippet, weights: Mapping[str, float], words_of: Callable[[str], Iterable[str]] = words
) -> tuple[tuple[int, int], ...]:
    """(start, end) of each word of a snippet that is a word of the query, in characters of the document."""
    spans = word_spans(part.text) if weights else ()
    is_match = (not weights.keys().isdisjoint(words_of(part.text[first:last])) for first, last in spans)
    marked = zip(spans, is_match, strict=True)
    return tuple((part.start + first, part.start + last) for (first, last), one in marked if one)
