"""Learning a vocabulary: how many single characters it keeps."""

import pytest

from bertkit.tokenizer import Vocabulary, train_vocabulary

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
