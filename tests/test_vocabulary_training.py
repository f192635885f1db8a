"""Learning a vocabulary: how many single characters it keeps, words that are too long, interrupts."""

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertkit.errors import DataError, UsageError
from bertkit.tokenizer import Vocabulary, train_vocabulary
from bertkit.tokenizer.training import _learn

FREQUENT = [chr(0x4E00 + number) for number in range(1_200)]  # Chinese: each character is a word
RARE = [chr(0x5E00 + number) for number in range(5)]
TEXTS = ["".join(FREQUENT)] * 10 + ["".join(RARE)]


def characters(vocabulary: Vocabulary) -> set[str]:
    return {token for token in vocabulary.tokens if len(token) == 1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, FREQUENT),  # 12,000 of 12,005, which is more than 99.95 %
        ({"max_alphabet": 2_000}, FREQUENT + RARE),
        ({"max_alphabet": 300}, FREQUENT[:300]),
        ({"vocab_size": 505}, FREQUENT[:500]),
    ],
    ids=str,
)
def test_alphabet_covers_the_text_unless_limited(options: dict[str, int], expected: list[str]) -> None:
    assert characters(train_vocabulary(TEXTS, **options)) == set(expected)


def test_alphabet_of_few_characters_keeps_rare_ones() -> None:
    assert characters(train_vocabulary(["abc " * 10_000, "z"])) == set("abcz")


@pytest.mark.parametrize("vocab_size", [7, 8, 11, 12, 25, 26])
def test_vocabulary_has_no_more_entries_than_asked_for(vocab_size: int) -> None:
    """A letter takes two entries where it also continues words; there are ten of them."""
    vocabulary = train_vocabulary(["abcde edcba fghij jihgf"] * 3, vocab_size=vocab_size)
    assert vocab_size - 1 <= len(vocabulary) <= vocab_size
    continuing = {token[2:] for token in vocabulary.tokens if token.startswith("##") and len(token) == 3}
    assert characters(vocabulary) == continuing != set()


def test_only_characters_inside_words_get_an_entry_after_the_prefix() -> None:
    vocabulary = train_vocabulary(["ab ac\u4e00 a.d", "\u4e00\u4e01"] * 3, vocab_size=17)
    assert vocabulary.tokens[5:] == (*".abcd\u4e00\u4e01", "##b", "##c", "ab", "ac")


def test_vocabulary_size_without_room_for_a_character_raises() -> None:
    with pytest.raises(UsageError, match="vocab_size=6: expected at least 7"):
        train_vocabulary(["low"], vocab_size=6)
    for option in ("min_frequency", "max_alphabet"):
        with pytest.raises(UsageError, match=f"{option}=0"):
            train_vocabulary(["low"], **{option: 0})


def test_words_that_are_too_long_are_skipped() -> None:
    texts = ["low lower lowest ab.cd"] * 7
    long = "".join(np.random.default_rng(0).choice(list("ACGT"), 50_000))
    assert train_vocabulary([*texts, f"new {long} newer"]) == train_vocabulary([*texts, "new newer"])
    assert train_vocabulary([*texts, "Q" * 101]) == train_vocabulary(texts)
    assert train_vocabulary([*texts, "각" * 34]) == train_vocabulary(texts)  # of three characters each without accents
    assert train_vocabulary([*texts, "ab.cd," * 30]) == train_vocabulary([*texts, "ab . cd , " * 30])
    assert "q" * 100 in train_vocabulary([*texts, "Q" * 100, "q" * 100]).tokens
    with pytest.raises(DataError, match="expected words of at most 100 characters"):
        train_vocabulary([long])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [("a\ud800", DataError, "text 1 is not valid Unicode: .* at character 1"), (7, UsageError, "text 1 is int"),
     (b"low", UsageError, "text 1 is bytes"), (None, UsageError, "text 1 is NoneType")],
)  # fmt: skip
def test_texts_that_cannot_be_read_raise(text: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        train_vocabulary(["low lower", text])


def test_interrupt_does_not_wait_for_the_library() -> None:
    released = threading.Event()

    def merge(*_: object) -> None:
        merging.append(threading.current_thread())
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(10)

    merging: list[threading.Thread] = []
    with pytest.raises(KeyboardInterrupt):
        _learn(SimpleNamespace(train_from_iterator=merge), None, [])  # pyrefly: ignore
    assert merging[0].is_alive() and merging[0].daemon  # which a program does not wait for when it exits
    released.set()
