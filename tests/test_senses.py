"""Senses of a word by grouping its contextual vectors."""

import json

import numpy as np
import pytest
from random_models import our_model

import bertkit
from bertkit.cli import run
from bertkit.errors import OverLengthError, UsageError
from bertkit.inspection.senses import find_senses, spherical_k_means

MONEY = [
    "The bank raised its interest rates on loans.", "She opened an account at the bank.",
    "The bank lends money to small companies.", "He works for a bank and sells mortgages.",
]  # fmt: skip
RIVER = [
    "They sat on the bank of the river and fished.", "The boat ran aground on the muddy bank.",
    "Willows grow along the bank of the stream.", "The river broke its bank after the flood.",
]  # fmt: skip


def test_clusters_of_separated_vectors():
    random = np.random.default_rng(0)
    true = np.repeat([0, 1, 2], [40, 25, 10])
    vectors = np.eye(3, 9)[true] + 0.1 * random.normal(size=(75, 9))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = random.permutation(75)
    groups, centers = spherical_k_means(vectors[order], 3)
    np.testing.assert_array_equal(groups, true[order])
    assert centers.shape == (3, 9)
    np.testing.assert_array_equal(spherical_k_means(vectors[order], 3)[0], groups)


@pytest.mark.full
def test_two_senses_of_bank_are_separated(tmp_path, capfd):
    texts = [*MONEY, "No such word here.", *RIVER]
    result = find_senses(bertkit.load("all-MiniLM-L6-v2", device="cpu"), "BANK", texts)
    assert result.texts == [0, 1, 2, 3, 5, 6, 7, 8]
    assert (
        len(set(result.groups[:4])) == 1 and len(set(result.groups[4:])) == 1 and result.groups[0] != result.groups[4]
    )
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    assert run(["words", "senses", "bank", str(tmp_path / "texts.txt")]) == 0
    assert [json.loads(line)["num_texts"] for line in capfd.readouterr().out.splitlines()] == [4, 4]


@pytest.mark.filterwarnings("error")
def test_equal_occurrences_are_one_sense():
    model = our_model("pretraining", 3)
    (only,) = find_senses(model, "cat", ["a cat"] * 5, 3).senses
    assert only.num_texts == 5 and only.cohesion == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["zebra"], "0 of 2 texts have the word 'zebra'"),
        (["bank", "--num-senses", "1"], "expected an int of at least 2"),
    ],
)
def test_bad_input_raises(tmp_path, capfd, arguments, message):
    (tmp_path / "texts.txt").write_text("a bank\nthe bank")
    word, *options = arguments
    assert run(["words", "senses", word, str(tmp_path / "texts.txt"), *options]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line


def test_a_text_that_is_too_long_is_named_by_its_number_among_all():
    model = our_model("pretraining", 3)
    with pytest.raises(OverLengthError, match=r"^text 2 has [^:]*: shorten it$") as raised:
        find_senses(model, "cat", ["a cat", "a dog", "cat " * 1_000, "the cat"])
    assert raised.value.index == 2
    with pytest.raises(UsageError, match="texts is a str"):
        find_senses(model, "cat", "a cat")  # type: ignore[arg-type]
