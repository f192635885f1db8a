"""Words of a domain: selected by count, added after all others, each starting as the mean of its pieces."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from random_models import our_model, vocabulary_tokens

import bertkit
from bertkit import Model, Tokenizer
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.tokenizer.training import train_vocabulary
from bertkit.vocabulary_extension import DomainWord, extend_embeddings, extend_vocabulary, find_domain_words

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENIZER = Tokenizer.from_vocab(vocabulary_tokens(99))
TEXTS = [
    "Bluedog, the bluedog and BLUEDOG!",
    "redcat redcat talkable 日本",
    "b2b b2b b2b",
    "naïve naive 日本 日本 日本",
] * 2


def test_domain_words_shorten_the_texts_most() -> None:
    assert find_domain_words(TOKENIZER, TEXTS, min_frequency=2) == [
        DomainWord("bluedog", 6, 4),  # blue ##d ##o ##g
        DomainWord("naive", 4, 5),  # accents dropped; n ##a ##i ##v ##e
        DomainWord("redcat", 4, 4),
        DomainWord("talkable", 2, 2),
    ]


def test_domain_words_equal_a_slow_count() -> None:
    counts: Counter[str] = Counter()
    for text in TEXTS:
        encoding = TOKENIZER.encode(text)
        words: dict[int, list[str]] = {}
        for token, word in zip(TOKENIZER.tokens(encoding), encoding.word_ids.tolist(), strict=True):
            words.setdefault(word, []).append(token)
        counts.update("".join(pieces).replace("##", "") for word, pieces in words.items() if len(pieces) > 1)
    expected = {word: count for word, count in counts.items() if word.isalpha() and word != "[CLS][SEP]"}
    results = find_domain_words(TOKENIZER, iter(TEXTS), min_frequency=1)
    assert {word.word: word.num_occurrences for word in results} == expected
    saved = [word.num_pieces_saved for word in results]
    assert saved == sorted(saved, reverse=True)
    before = len(TOKENIZER.encode_batch(TEXTS).input_ids)
    extended = extend_vocabulary(TOKENIZER, [word.word for word in results])
    assert before - len(extended.encode_batch(TEXTS).input_ids) == sum(saved)
    assert find_domain_words(extended, TEXTS, min_frequency=1) == []
    assert find_domain_words(TOKENIZER, TEXTS, min_frequency=1, num_words=2) == results[:2]
    assert all(word.num_occurrences >= 5 for word in find_domain_words(TOKENIZER, TEXTS))


def test_domain_words_include_unknown_words() -> None:
    texts = ["µsv µSV Μµ", "1µsv"] * 2
    (word,) = find_domain_words(TOKENIZER, texts, min_frequency=4)
    assert (word.word, word.num_occurrences, word.num_pieces) == (TOKENIZER.normalize("µsv"), 4, 3)
    extended = extend_vocabulary(TOKENIZER, [word.word])
    assert extended.encode("µSV").input_ids[1:-1].tolist() == [99]


@pytest.mark.parametrize("is_lower", [True, False])
def test_domain_words_include_words_with_combining_marks(is_lower: bool) -> None:
    words = ["हिन्दी", "தமிழ்", "ที่นี่"]
    tokenizer = Tokenizer.from_vocab(vocabulary_tokens(99), lowercase=is_lower)
    results = find_domain_words(tokenizer, [*words, "\u0301", "١٢"] * 5)
    assert {word.word for word in results} == {tokenizer.normalize(word) for word in words}
    extended = extend_vocabulary(tokenizer, [word.word for word in results])
    assert sorted(extended.encode(" ".join(words)).input_ids[1:-1].tolist()) == [99, 100, 101]


def test_new_entries_come_last_and_are_matched_longest_first() -> None:
    extended = extend_vocabulary(TOKENIZER, ["bluedog", "redcat"])
    assert extended.vocabulary.tokens == (*TOKENIZER.vocabulary.tokens, "bluedog", "redcat")
    tokens = extended.tokens(extended.encode("Bluedogs redcat the dog bluedo"))[1:-1]
    assert tokens == ["bluedog", "##s", "redcat", "the", "dog", "blue", "##d", "##o"]
    assert TOKENIZER.tokens(TOKENIZER.encode("bluedog"))[1:-1] == ["blue", "##d", "##o", "##g"]  # as it was


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["the"], "has 'the' already, as id"),
        (["Bluedog"], "'Bluedog' would never be matched"),
        (["blue dog"], "'blue dog' would never be matched"),
        (["blue-dog"], "'blue-dog' would never be matched"),
        (["näive"], "would never be matched"),
        (["##dog"], "'##dog' would never be matched"),
        ([""], "'' would never be matched"),
        (["x" * 101], "would never be matched"),
        (["bluedog", "bluedog"], "holds 'bluedog' twice"),
    ],
)
def test_invalid_new_words_raise(words: list[str], message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        extend_vocabulary(TOKENIZER, words)


def test_one_text_instead_of_several_raises() -> None:
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    for call in (lambda: find_domain_words(tokenizer, "cardiology " * 5), lambda: train_vocabulary("low lower")):
        with pytest.raises(UsageError, match=r"texts is a str .*: expected several"):
            call()
    with pytest.raises(UsageError, match=r"'日本'.*: expected several"):
        extend_vocabulary(tokenizer, "日本")


def test_numbers_below_one() -> None:
    with pytest.raises(UsageError, match="num_words=0"):
        find_domain_words(TOKENIZER, [], num_words=0)
    with pytest.raises(UsageError, match="min_frequency=0"):
        find_domain_words(TOKENIZER, [], min_frequency=0)


@pytest.fixture
def model() -> Model:
    return our_model("pretraining", 6, vocab_size=99)


@torch.inference_mode()
def test_new_rows_are_means_of_pieces_and_other_weights_unchanged(model: Model) -> None:
    old = our_model("pretraining", 6, vocab_size=99)
    model.extend_vocabulary(["bluedog", "redcat"])
    assert model.config.vocab_size == model.encoder.config.vocab_size == 101
    ids = [old.tokenizer.vocabulary.id(piece) for piece in ("blue", "##d", "##o", "##g")]
    rows, before = model.encoder.embeddings.word.weight, old.encoder.embeddings.word.weight
    bias, bias_before = model.network.heads["masked_lm"].bias, old.network.heads["masked_lm"].bias
    torch.testing.assert_close(rows[99], before[ids].mean(0), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(bias[99], bias_before[ids].mean(0), rtol=1e-6, atol=1e-6)
    assert rows.shape == (101, before.shape[1]) and bias.shape == (101,)
    assert rows.requires_grad and bias.requires_grad
    unchanged = dict(model.network.named_parameters())
    for name, parameter in old.network.named_parameters():
        assert torch.equal(unchanged.pop(name)[: len(parameter)], parameter), name
    assert not unchanged

    text = "the blue dog walked, talking"
    encoding = model.tokenizer.encode(text)
    assert encoding.input_ids.tolist() == old.tokenizer.encode(text).input_ids.tolist()
    batch = bertkit.collate([encoding])
    results, expected = model.network(batch), old.network(batch)
    assert torch.equal(results.encoded.last_hidden_state, expected.encoded.last_hidden_state)
    torch.testing.assert_close(results.logits["masked_lm"][:, :99], expected.logits["masked_lm"], rtol=1e-5, atol=1e-5)
    new = model.network.heads["masked_lm"](results.encoded.last_hidden_state, rows)[:, 99]
    mean = expected.logits["masked_lm"][:, ids].mean(1)  # the head is linear in its rows
    torch.testing.assert_close(new, mean, rtol=1e-4, atol=1e-4)


def test_spare_rows_are_used_first() -> None:
    network = our_model("pretraining", 6, vocab_size=101).network
    old = Tokenizer.from_vocab(vocabulary_tokens(99))
    before = network.encoder.embeddings.word.weight.clone()
    extend_embeddings(network, old, extend_vocabulary(old, ["bluedog"]))
    after = network.encoder.embeddings.word.weight
    assert network.config.vocab_size == 101 and after.shape == before.shape
    assert torch.equal(after[[*range(99), 100]], before[[*range(99), 100]]) and not torch.equal(after[99], before[99])
    with pytest.raises(UsageError, match="does not begin with the entries of the old one"):
        extend_embeddings(network, extend_vocabulary(old, ["bluedog"]), extend_vocabulary(old, ["redcat"]))


def test_prepared_encoder_uses_the_new_rows(model: Model, tmp_path: Path) -> None:
    before = model.embed("the bluedog")
    model.extend_vocabulary(["bluedog"])
    after = model.embed("the bluedog")
    assert np.abs(after - before).max() > 1e-3
    assert len(model.fill_mask("the [MASK]", top_k=200)[0].candidates) == 100
    model.save(tmp_path / "model")
    np.testing.assert_allclose(bertkit.load(tmp_path / "model").embed("the bluedog"), after, atol=1e-6)


def test_saved_model_opens_in_transformers(model: Model, tmp_path: Path) -> None:
    model.extend_vocabulary(["bluedog", "redcat"])
    model.save(tmp_path / "model")
    network = transformers.BertForPreTraining.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert network.config.vocab_size == len(tokenizer) == 101
    inputs = tokenizer("the Bluedogs, redcat", return_tensors="pt")
    encoding = model.tokenizer.encode("the Bluedogs, redcat")
    assert inputs["input_ids"][0].tolist() == encoding.input_ids.tolist()
    with torch.inference_mode():
        expected, results = network(**inputs).prediction_logits[0], model.network(bertkit.collate([encoding])).logits
    torch.testing.assert_close(results["masked_lm"], expected, rtol=1e-4, atol=1e-4)


def test_command(model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("the bluedog\na bluedog, redcat\nbluedog redcat talkable\n")
    arguments = ["vocab", "extend", str(tmp_path / "texts.txt"), "--model", str(tmp_path / "model")]
    assert run([*arguments, "--out", str(tmp_path / "new"), "--min-frequency", "2"]) == 0
    captured = capsys.readouterr()
    assert [json.loads(line) for line in captured.out.splitlines()] == [
        {"token_id": 99, "word": "bluedog", "num_occurrences": 3, "num_pieces": 4},
        {"token_id": 100, "word": "redcat", "num_occurrences": 2, "num_pieces": 4},
    ]
    assert "2 words added, 101 entries" in captured.err
    reopened = bertkit.load(tmp_path / "new")
    assert reopened.tokenizer.encode("redcat").input_ids.tolist() == [2, 100, 3]
    assert run([*arguments, "--out", str(tmp_path / "other"), "--min-frequency", "9"]) == 2
    assert "splits into pieces occurs 9 times; lower --min-frequency" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
