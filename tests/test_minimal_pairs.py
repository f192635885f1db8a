"""Pseudo-log-likelihood equal to a slow loop over transformers; suites with known scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from random_models import our_model

import bertkit
from bertkit import Model
from bertkit.cli import run
from bertkit.errors import CheckpointError, DataError, MissingHeadError, OverLengthError, UsageError
from bertkit.evidence import (
    MinimalPair,
    Paradigm,
    bootstrap_interval,
    read_suite,
    score_minimal_pairs,
    wilson_interval,
)
from bertkit.inference import pseudo_likelihood
from bertkit.locate import locate

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [
    "the cat sat on the mat",
    "Unable blueish cats walked, and talking dogs!",
    "",
    "a",
    "the 日本 dog [MASK] ran",
    "redder greener bluest walkable runable",
]


@pytest.fixture(scope="module")
def model() -> Model:
    """Pre-training heads, three layers, 41 positions."""
    return our_model("pretraining", 6, max_position_embeddings=41)


@torch.inference_mode()
def one_by_one(network, tokenizer, text: str, method: str) -> list[float]:
    """Each token hidden by hand, one forward pass for each."""
    encoded = tokenizer(text, return_tensors="pt", split_special_tokens=True)
    ids, words = encoded["input_ids"], encoded.word_ids()
    results = []
    for index in range(1, ids.shape[1] - 1):
        hidden = ids.clone()
        for other in range(index, ids.shape[1] - 1):
            if other == index or (method == "l2r" and words[other] == words[index]):
                hidden[0, other] = tokenizer.mask_token_id
        logits = network(input_ids=hidden).logits[0, index].double()
        results.append(float(logits.log_softmax(-1)[ids[0, index]]))
    return results


@pytest.mark.parametrize("method", ["plain", "l2r"])
def test_every_token_is_as_likely_as_to_transformers(model: Model, method: str, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    network = transformers.BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    results = model.token_log_probs(TEXTS, method=method)
    for text, log_probs in zip(TEXTS, results, strict=True):
        expected = one_by_one(network, tokenizer, text, method)
        assert len(model.tokenizer.encode(text)) - 2 == len(expected)
        np.testing.assert_allclose(log_probs, expected, rtol=0, atol=1e-4)
    sums = model.pseudo_log_likelihood(TEXTS, method=method)
    assert sums.dtype == np.float64 and sums.shape == (len(TEXTS),)
    np.testing.assert_array_equal(sums, [log_probs.sum() for log_probs in results])
    assert sums[2] == 0 and sums.std() > 1


def test_later_pieces_of_a_word_are_hidden_too(model: Model) -> None:
    plain, l2r = model.token_log_probs(["blueish cat"]), model.token_log_probs(["blueish cat"], method="l2r")
    assert model.tokenizer.tokens(model.tokenizer.encode("blueish cat"))[1:-1] == ["blue", "##i", "##s", "##h", "cat"]
    differs = np.abs(plain[0] - l2r[0]) > 1e-3
    assert differs.tolist() == [True, True, True, False, False]  # a last piece has no later one


@pytest.mark.parametrize("method", ["plain", "l2r"])
def test_likelihood_is_equal_regardless_of_batch(model: Model, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.pseudo_log_likelihood(TEXTS, method=method)
    for text, value in zip(TEXTS, expected, strict=True):
        alone = model.pseudo_log_likelihood(text, method=method)
        assert isinstance(alone, float) and alone == pytest.approx(value, rel=1e-6)
    with pytest.raises(UsageError, match="expected texts, got 7: pass a str, or several"):
        model.pseudo_log_likelihood(7, method=method)  # pyrefly: ignore
    turned = model.pseudo_log_likelihood(TEXTS[::-1], method=method)
    np.testing.assert_allclose(turned[::-1], expected, rtol=1e-6, atol=1e-5)
    monkeypatch.setattr(pseudo_likelihood, "_TOKENS_AT_A_TIME", 37)  # a text's copies fall into several parts
    np.testing.assert_allclose(model.pseudo_log_likelihood(TEXTS, method=method), expected, rtol=1e-6, atol=1e-5)
    assert model.pseudo_log_likelihood([], method=method).shape == (0,)
    assert model.token_log_probs(["", ""], method=method)[1].shape == (0,)


def test_only_hidden_positions_are_projected(model: Model) -> None:
    rows = []
    head = model.network.heads["masked_lm"]
    hook = head.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    model.pseudo_log_likelihood(TEXTS)
    hook.remove()
    assert sum(rows) == sum(len(model.tokenizer.encode(text)) - 2 for text in TEXTS)


def test_texts_that_have_no_likelihood(model: Model) -> None:
    with pytest.raises(OverLengthError, match=r"text 1 has 43 tokens"):
        model.pseudo_log_likelihood(["a", "the " * 41])
    with pytest.raises(UsageError, match="method='word'"):
        model.pseudo_log_likelihood("a", method="word")  # pyrefly: ignore
    with pytest.raises(UsageError, match="text 1 is int"):
        model.pseudo_log_likelihood(["a", 3])  # pyrefly: ignore
    with pytest.raises(MissingHeadError, match="no masked_lm head"):
        our_model("encoder", 6).pseudo_log_likelihood("a")


def test_published_value_of_mlm_scoring() -> None:
    """awslabs/mlm-scoring, README: bert-base-cased, "Hello world!"."""
    try:
        locate("bert-base-cased")
    except CheckpointError:
        pytest.skip("bert-base-cased is not in the hub's cache (HF_HUB_CACHE): its published likelihood is not checked")
    (results,) = bertkit.load("bert-base-cased", heads=["masked_lm"]).token_log_probs(["Hello world!"])
    np.testing.assert_allclose(results, [-6.126737, -5.501412, -0.782515], rtol=0, atol=1e-3)
    assert results.sum() == pytest.approx(-12.410664, abs=1e-3)


@pytest.fixture
def unigram() -> Model:
    """A model of word frequencies only: "cat" more than "dog", "dog" more than the rest."""
    model = our_model("pretraining", 6, max_position_embeddings=11)
    head, vocabulary = model.network.heads["masked_lm"], model.tokenizer.vocabulary
    with torch.no_grad():
        for parameter in (head.norm.weight, head.norm.bias, head.bias):
            parameter.zero_()
        head.bias[vocabulary.id("cat")] = 3
        head.bias[vocabulary.id("dog")] = 2
    return model


def test_known_likelihood(unigram: Model) -> None:
    size = unigram.config.vocab_size
    total = np.log(np.exp(3) + np.exp(2) + size - 2)
    results = unigram.token_log_probs(["cat sat", "the dog"], method="l2r")
    np.testing.assert_allclose(np.concatenate(results), [3 - total, -total, -total, 2 - total], atol=1e-5)


SUITE = [
    Paradigm(
        "frequency",
        (
            MinimalPair("the cat sat", "the dog sat"),  # right
            MinimalPair("the dog sat", "the cat sat"),  # wrong
            MinimalPair("a dog ran", "a mat ran"),  # right
            MinimalPair("日 cat", "日 dog"),  # right, with an unknown character in both
        ),
        "words",
        "lexicon",
    ),
    Paradigm("order", (MinimalPair("the cat sat on", "on sat cat the"), MinimalPair("cat " * 12, "dog")), "order"),
    Paradigm("sameness", (MinimalPair("cat", "Cat"), MinimalPair("cat", "dog")), "words", "lexicon"),
]


@pytest.mark.full
def test_suite_with_known_score(unigram: Model) -> None:
    score = score_minimal_pairs(unigram, SUITE)
    counts = [
        (one.kind, one.name, one.num_pairs, one.num_correct, one.num_ties, one.num_too_long, one.num_unknown)
        for one in (*score.paradigms, *score.terms, *score.fields)
    ]
    assert counts == [
        ("paradigm", "frequency", 4, 3, 0, 0, 1),
        ("paradigm", "order", 2, 0, 1, 1, 0),
        ("paradigm", "sameness", 2, 1, 1, 0, 0),
        ("term", "words", 6, 4, 1, 0, 1),
        ("term", "order", 2, 0, 1, 1, 0),
        ("field", "lexicon", 6, 4, 1, 0, 1),
    ]
    assert score.accuracy == pytest.approx((3 / 4 + 0 + 1 / 2) / 3)  # the mean of paradigms, not of pairs
    assert score.interval == bootstrap_interval([3 / 4, 0, 1 / 2], seed=0)
    *_, mean = score.rows()
    assert (mean["kind"], mean["num_pairs"], mean["num_ties"], mean["num_too_long"], mean["num_unknown"]) == (
        "mean", 8, 2, 1, 1,
    )  # fmt: skip
    assert mean["interval_method"] == "bootstrap over paradigms"
    (only,) = score_minimal_pairs(unigram, SUITE[:1]).rows()[-1:]
    assert only["interval"] == list(wilson_interval(3, 4)) and only["interval_method"] == "Wilson"
    turned = [Paradigm(one.name, tuple(MinimalPair(*pair[::-1]) for pair in one.pairs)) for one in SUITE]
    assert [one.num_correct for one in score_minimal_pairs(unigram, turned).paradigms] == [1, 0, 0]


def test_wilson_intervals_equal_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for correct, total in ((0, 1), (0, 7), (3, 7), (7, 7), (811, 1000), (1, 2000)):
        expected = stats.binomtest(correct, total).proportion_ci(method="wilson")
        np.testing.assert_allclose(wilson_interval(correct, total), expected, atol=1e-9)


def test_nothing_to_measure_raises(unigram: Model) -> None:
    for correct, total in ((0, 0), (5, 4), (-1, 4)):
        with pytest.raises(UsageError, match=f"{correct} of {total} examples are correct"):
            wilson_interval(correct, total)
    with pytest.raises(UsageError, match="expected at least one"):
        bootstrap_interval([])
    for suite in ([], [Paradigm("empty", ())]):
        with pytest.raises(UsageError, match=f"{len(suite)} paradigms: expected at least one, each with"):
            score_minimal_pairs(unigram, suite)


def test_bootstrap_of_a_mean() -> None:
    values = np.random.default_rng(3).normal(0.7, 0.2, 400)
    low, high = bootstrap_interval(values, seed=5)
    half = 1.96 * values.std() / np.sqrt(len(values))
    np.testing.assert_allclose([low, high], [values.mean() - half, values.mean() + half], atol=0.1 * half)
    assert bootstrap_interval(values, seed=5) == (low, high) != bootstrap_interval(values, seed=6)
    assert bootstrap_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)


def blimp_row(number: int, **changes) -> str:
    row = {
        "sentence_good": f"good {number}", "sentence_bad": f"bad {number}", "field": "morphology",
        "linguistics_term": "anaphor_agreement", "UID": "anaphor_gender_agreement", "simple_LM_method": True,
        "pairID": str(number),
    }  # fmt: skip
    return json.dumps({key: value for key, value in (row | changes).items() if value is not None}) + "\n"


def test_blimp_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(blimp_row(1) + blimp_row(2) + blimp_row(3, UID="other", field=None))
    (tmp_path / "b.jsonl").write_text(blimp_row(4, UID=None, linguistics_term=None, term="x") + blimp_row(5))
    (tmp_path / "README.md").write_text("not a suite")
    first, other, unnamed = read_suite(tmp_path)
    assert (first.name, first.term) == ("anaphor_gender_agreement", "anaphor_agreement")
    assert first.field == "morphology"
    assert first.pairs == (("good 1", "bad 1"), ("good 2", "bad 2"), ("good 5", "bad 5"))
    assert (other.name, other.field, other.pairs[0].bad) == ("other", None, "bad 3")
    assert (unnamed.name, unnamed.term) == ("b", "x")
    assert [len(one.pairs) for one in read_suite(tmp_path, limit=1)] == [1, 1, 1]
    assert read_suite(tmp_path / "b.jsonl")[0].name == "b"


def test_blank_ends_and_files_that_accompany_a_suite(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(blimp_row(1) + "\n \n")
    (tmp_path / "b.txt").write_text("bad\ngood\n\n\n")
    for name in ("LICENSE.txt", "Readme.txt"):
        (tmp_path / name).write_text("Anyone may read this.\n")
    assert [(one.name, len(one.pairs)) for one in read_suite(tmp_path)] == [("anaphor_gender_agreement", 1), ("b", 1)]


def test_zorro_files_have_the_bad_sentence_first(tmp_path: Path) -> None:
    (tmp_path / "filler-gap-wh_question.txt").write_text("bad 1\ngood 1\nbad 2\ngood 2\n")
    (tmp_path / "plain.txt").write_text("bad\ngood\n")
    gap, plain = read_suite(tmp_path)
    assert (gap.name, gap.term, gap.field) == ("filler-gap-wh_question", "filler-gap", None)
    assert gap.pairs == (MinimalPair(good="good 1", bad="bad 1"), MinimalPair(good="good 2", bad="bad 2"))
    assert plain.term is None


def test_score_of_zorro_suite(shared_data: Path) -> None:
    suite = read_suite(shared_data / "zorro")
    assert [len(paradigm.pairs) for paradigm in suite] == [2_000] * 23
    assert suite[0].name == "agreement_determiner_noun-across_1_adjective"
    assert suite[0].pairs[0] == ("look at this purple thing .", "look at this purple things .")
    assert len({paradigm.term for paradigm in suite}) == 13


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "bad\ngood\nbad\n", "a.txt, line 3 has no partner"),
        ("a.txt", "bad\n\nbad\ngood\n", "a.txt, line 2 is blank"),
        ("a.txt", "", "a.txt holds no texts"),
        ("a.txt", "\n\n", "a.txt is empty"),
        ("a.jsonl", blimp_row(1) + "\n" + blimp_row(2), "a.jsonl, line 2 is not a pair"),
        ("a.txt", b"bad\n\xff\n", "a.txt, line 2: byte 0 is not UTF-8"),
        ("a.jsonl", blimp_row(1) + "{\n", "a.jsonl, line 2 is not a pair.* got {; correct"),
        ("a.jsonl", blimp_row(1) + blimp_row(2, sentence_bad=3), "a.jsonl, line 2 is not a pair"),
        ("a.jsonl", blimp_row(1, sentence_good=" "), "a.jsonl, line 1 is not a pair"),
        ("a.jsonl", b"\xff\n", "a.jsonl, line 1 is not a pair"),
        ("a.jsonl", "[" * 100_000, "a.jsonl, line 1 is not a pair"),
        ("a.jsonl", "", "a.jsonl is empty"),
        ("a.csv", "a,b\n", "holds no minimal pairs"),
    ],
)
def test_files_that_hold_no_pairs(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        read_suite(tmp_path)


def test_missing_suites_raise(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read_suite(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="limit=0"):
        read_suite(tmp_path, limit=0)


def test_command(unigram: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unigram.save(tmp_path / "model")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "nouns-frequency.txt").write_text("a dog sat\na cat sat\na cat\na dog\n")
    arguments = ["evaluate", "grammar", str(tmp_path / "suite"), "--model", str(tmp_path / "model")]
    assert run([*arguments, "--method", "l2r"]) == 0
    paradigm, term, mean = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (paradigm["kind"], paradigm["name"], paradigm["accuracy"], paradigm["method"]) == (
        "paradigm", "nouns-frequency", 0.5, "l2r",
    )  # fmt: skip
    assert (term["name"], mean["accuracy"], mean["num_pairs"]) == ("nouns", 0.5, 2)
    assert paradigm["interval"] == list(wilson_interval(1, 2))
    assert run([*arguments, "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["accuracy"] == 1
    (tmp_path / "suite" / "odd.txt").write_text("a\n")
    assert run(arguments) == 2
    assert "odd.txt, line 1 has no partner" in capsys.readouterr().err
