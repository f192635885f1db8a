"""Texts with tags from a caller's texts and words, and how well a rule of words fits them."""

from collections.abc import Sequence
from typing import Any, get_args

from bertkit.tasks.examples import TaggedText, other_input
from bertkit.tasks.tags import spell
from bertkit.tasks.words import Words, entities_of_spans, joined, words_of

_FEW = 0.02  # share of words that a rule may miss


def tagged_text(
    item: Any, label: Any = None, location: str = "", *, words: Words = "punctuation", snap_spans: bool = False
) -> TaggedText:
    """A text, with character spans as label, or a list of words, with tags as label, as an example.

    Args:
        words: the rule that splits a text with spans into words.
        snap_spans: move spans that begin or end inside a word to its borders.
    """
    if isinstance(item, TaggedText):
        return item
    if isinstance(item, str):
        if label is None:
            return TaggedText(item, location=location)
        spans = words_of(item, words)
        results = entities_of_spans(label, item, spans, snap=snap_spans)
        if results.problem:
            raise TaggedText(item, location=location).error(results.problem.removeprefix(": "))
        return TaggedText(item, spans, tuple(spell(results.entities, len(spans), "BIO")), location)
    if not isinstance(item, Sequence) or not all(isinstance(word, str) and word for word in item):
        raise other_input(item, "a str, or a list of words", location)
    text, spans = joined(item)
    if label is not None and not (isinstance(label, list | tuple) and all(isinstance(tag, str) for tag in label)):
        problem = f"its tags are {label!r:.60}: expected a list of strs, one for each word"
        raise TaggedText(text, location=location).error(problem)
    return TaggedText(text, spans, None if label is None else tuple(tag.strip() for tag in label), location)


def rule_of_words(examples: Sequence[TaggedText]) -> Words:
    """The rule that splits texts into words as examples have them: "punctuation", unless it misses more than one word
    and 2 % of the words, and "spaces" misses fewer."""
    shares, num_words = shares_of_words(examples), sum(len(example.words or ()) for example in examples)
    missed = (1 - shares["punctuation"]) * num_words
    is_usual = round(missed) <= max(1, _FEW * num_words) or shares["punctuation"] >= shares["spaces"]
    return "punctuation" if is_usual else "spaces"


def shares_of_words(examples: Sequence[TaggedText]) -> dict[str, float]:
    """The share of the words of examples that each rule splits alike."""
    counts, num_words = dict.fromkeys(get_args(Words), 0), 0
    for example in examples:
        spans = set(example.words or ())
        num_words += len(spans)
        for rule in counts:
            counts[rule] += len(spans.intersection(words_of(example.text, rule)))
    return {rule: count / max(num_words, 1) for rule, count in counts.items()}
