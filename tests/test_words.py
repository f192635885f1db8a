"""Queries of word vectors and word benchmarks, equal to gensim's; `bertkit words`."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_models import our_model
from word2vec_files import write_word2vec

from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.words import StaticEncoder
from bertkit.words.benchmarks import score_benchmark
from bertkit.words.opening import input_embeddings, open_words
from bertkit.words.queries import analogy, axis, nearest, nearest_to, odd_one_out, unit

WORDS = [f"w{number}" for number in range(211)]
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 13)).astype(np.float32)
BENCHMARKS = Path(__file__).parents[2] / "shared" / "data" / "word_benchmarks"


@pytest.fixture
def keyed():
    keyed = pytest.importorskip("gensim.models").KeyedVectors(VECTORS.shape[1])
    keyed.add_vectors(WORDS, VECTORS)
    return keyed


@pytest.fixture
def encoder() -> StaticEncoder:
    return StaticEncoder.of_words(WORDS, VECTORS)


@pytest.mark.parametrize("rows_at_a_time", [17, 1 << 16])
def test_nearest_and_analogies_equal_gensim(monkeypatch, encoder, keyed, rows_at_a_time):
    monkeypatch.setattr("bertkit.words.queries._ROWS_AT_A_TIME", rows_at_a_time)
    for ours, theirs in (
        (nearest(encoder, "w5", 7), keyed.most_similar("w5", topn=7)),
        (analogy(encoder, "w3", "w9", "w4", 7), keyed.most_similar(positive=["w3", "w4"], negative=["w9"], topn=7)),
    ):
        assert [one.word for one in ours] == [word for word, _ in theirs]
        np.testing.assert_allclose([one.score for one in ours], [score for _, score in theirs], atol=1e-6)


def test_odd_one_out_equals_gensim(encoder, keyed):
    for first in range(0, 200, 8):
        words = WORDS[first : first + 5]
        (odd,) = [one.word for one in odd_one_out(encoder, words) if one.is_odd]
        assert odd == keyed.doesnt_match(words)


def test_words_that_share_a_vector_are_all_near():
    encoder = StaticEncoder.of_words(["a", "b", "c"], np.eye(2, 3), np.array([0, 1, 1]))
    assert [one.word for one in nearest(encoder, "a", 5)] == ["b", "c"]


def test_unknown_words_are_asked_by_their_ngrams():
    words, vectors = ["cat", "dog", "cow"], np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    ngrams = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    encoder = replace(StaticEncoder.of_words(words, vectors), ngrams=ngrams)
    expected = unit(vectors) @ unit(encoder.vector("cats"))
    assert [(one.word, one.score) for one in nearest(encoder, "Cats", 5)] == [
        (words[row], pytest.approx(expected[row], abs=1e-6)) for row in np.argsort(-expected)
    ]
    assert {one.word for one in analogy(encoder, "cats", "cat", "dogs", 5)} == {"dog", "cow"}
    with_inputs = analogy(encoder, "cats", "cat", "dogs", 5, with_inputs=True)
    assert {one.word for one in with_inputs} == {"cat", "dog", "cow"}


def test_pairs_that_cancel_define_no_direction(encoder):
    with pytest.raises(UsageError, match="cancel: order the words of each pair in the same way"):
        axis(encoder, [("w1", "w2"), ("w2", "w1")], ["w3"])


def test_benchmarks_equal_gensim(tmp_path, encoder, keyed):
    random = np.random.default_rng(1)
    pairs = [(*random.choice(WORDS, 2, replace=False), random.integers(10)) for _ in range(50)] + [("w1", "unknown", 3)]
    (tmp_path / "pairs.csv").write_text(",word1,word2,similarity\n" + "".join(f"0,{a},{b},{c}\n" for a, b, c in pairs))
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\t{c}\n" for a, b, c in pairs))
    (score,) = score_benchmark(encoder, tmp_path / "pairs.csv")
    _, theirs, share_unknown = keyed.evaluate_word_pairs(str(tmp_path / "pairs.tsv"))
    assert score.value == pytest.approx(theirs.statistic, abs=1e-9)
    assert (score.num_covered, score.num_rows) == (50, 51)
    assert 100 * (1 - score.num_covered / score.num_rows) == pytest.approx(share_unknown)
    questions = []
    for number in range(60):
        a, b, c = (str(word) for word in random.choice(WORDS, 3, replace=False))
        target = keyed.most_similar(positive=[b, c], negative=[a], topn=1)[0][0] if number % 3 else "w7"
        questions.append((f"part{number % 2}", a, b, c, target))
    rows = [f"0,{','.join(one)}\n" for one in questions]
    (tmp_path / "questions.csv").write_text(",type,word1,word2,word3,target\n" + "".join(rows))
    with (tmp_path / "questions.txt").open("w") as file:
        for part in ("part0", "part1"):
            file.write(f": {part}\n" + "".join(" ".join(one[1:]) + "\n" for one in questions if one[0] == part))
    overall, sections = keyed.evaluate_word_analogies(str(tmp_path / "questions.txt"), case_insensitive=False)
    scores = {one.section: one.value for one in score_benchmark(encoder, tmp_path / "questions.csv")}
    assert scores["all"] == pytest.approx(overall)
    for section in sections[:2]:
        share = len(section["correct"]) / (len(section["correct"]) + len(section["incorrect"]))
        assert scores[section["section"]] == pytest.approx(share)


def test_percentiles_on_a_direction_count_words(monkeypatch):
    """Rows without a word, such as [unused0], do not count; a row that two words share counts twice."""
    monkeypatch.setattr("bertkit.words.queries._ROWS_AT_A_TIME", 3)
    vectors = np.array([[1, 0], [-1, 0], [0.9, 0.1], [-0.9, 0.1], [0, 1], *[[1, 0]] * 90], np.float32)
    rows = np.array([0, 1, 2, 3, 4, 0], np.int32)
    encoder = StaticEncoder.of_words(["he", "she", "man", "woman", "x", "him"], vectors, rows)
    result = axis(encoder, [("he", "she"), ("man", "woman")], ["x"])
    assert result.words[0].percentile == pytest.approx(100 * 3 / 6)


def test_words_of_a_model_are_looked_up_as_its_tokenizer_reads_them() -> None:
    encoder = input_embeddings(our_model("encoder", 1, vocab_size=101))
    for word in ("cat", "CAT", "c\xe1t", "Ca\u0301t"):
        assert word in encoder and encoder.row_of(word) == encoder.tokens.vocabulary.id("cat")
    for word in ("the cat", "cat.", "", "[CLS]", "[UNK]", "\u2603", 3):
        assert word not in encoder


def test_direction_is_the_shared_difference():
    random = np.random.default_rng(2)
    shared, left = np.eye(9)[0], random.normal(size=(6, 9)) * [0, *[1] * 8]
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    vectors = np.concatenate([left - 0.5 * shared, left + 0.5 * shared, [shared, -shared]])
    words = [*(f"l{n}" for n in range(6)), *(f"r{n}" for n in range(6)), "high", "low"]
    result = axis(StaticEncoder.of_words(words, vectors), [(f"l{n}", f"r{n}") for n in range(6)], ["high", "low"])
    np.testing.assert_allclose(result.vector, shared, atol=1e-6)
    np.testing.assert_allclose(result.agreement, 1, atol=1e-6)
    assert [one.score for one in result.words] == pytest.approx([1, -1], abs=1e-6)
    assert result.words[0].percentile > 90 and result.words[1].percentile == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nearest", "zebra"], "'zebra' has no vector among the 211 words"),
        (["analogy", "w1", "zebra", "w2"], "'zebra' has no vector"),
        (["nearest", "w1", "--top-k", "0"], "--top-k 0: expected an int of at least 1"),
        (["odd-one-out", "w1", "w2"], "2 words: expected at least three"),
        (["axis", "w1", "--pair", "w1w2", "--pair", "w3:w4"], "expected two words separated by a colon"),
        (["axis", "w1", "--pair", "w1:w2"], "1 pairs: expected at least two"),
        (["axis", "w1", "--pair", "w1:w1", "--pair", "w3:w4"], "have one vector: give different words"),
        (["score"], "at least one csv file"),
        (["score", "missing.csv"], "missing.csv: no such file"),
    ],
)
def test_bad_questions_end_with_one_sentence(tmp_path, capfd, arguments, message):
    write_word2vec(tmp_path / "words.vec", WORDS, VECTORS)
    assert run(["words", *arguments, "--model", str(tmp_path / "words.vec")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line


def test_a_vector_of_zeros_has_no_cosine():
    encoder = StaticEncoder.of_words(["zero", "a", "b"], [[0, 0], [1, 0], [0, 1]])
    for ask in (
        lambda: nearest(encoder, "zero"), lambda: analogy(encoder, "a", "zero", "b"),
        lambda: odd_one_out(encoder, ["a", "b", "zero"]), lambda: axis(encoder, [("a", "b"), ("a", "b")], ["zero"]),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="the vector of 'zero' is zero, which has no cosine"):
            ask()
    with pytest.raises(UsageError, match="the vector is zero"):
        nearest_to(encoder, np.zeros(2), 1)
    assert [near.word for near in nearest(encoder, "a", 3)] == ["b"]


def test_bad_benchmarks_raise(tmp_path, encoder):
    (tmp_path / "a.csv").write_text("one,two\n1,2\n")
    with pytest.raises(DataError, match="has the columns one, two: expected word1"):
        score_benchmark(encoder, tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("word1,word2,similarity\nw1,w2,high\n")
    for rating in ("high", "nan", "inf"):
        (tmp_path / "b.csv").write_text(f"word1,word2,similarity\nw1,w2,{rating}\n")
        with pytest.raises(DataError, match=f"line 2: similarity is '{rating}', expected a finite number"):
            score_benchmark(encoder, tmp_path / "b.csv")
    for content, message in (
        (b"word1,word2,similarity\nw1,w2,3\ncoffee,,3\n", "line 3 has no word2: add it, or remove the row"),
        (b"word1,word2,word3,target\nw1,w2,w3,\n", "line 2 has no target: add it, or remove the row"),
        (b"word1,word2,similarity\nw1,w2,3\ncaf\xe9,w2,3\n", "line 3: byte 3 is not UTF-8; convert the file"),
    ):
        (tmp_path / "c.csv").write_bytes(content)
        with pytest.raises(DataError, match=message):
            score_benchmark(encoder, tmp_path / "c.csv")


def test_commands_print_json_lines(tmp_path, capfd):
    write_word2vec(tmp_path / "words.vec", WORDS, VECTORS)
    assert run(["words", "analogy", "w3", "w9", "w4", "--top-k", "2", "--model", str(tmp_path / "words.vec")]) == 0
    printed = capfd.readouterr()
    assert "the three words are excluded" in printed.err
    assert [set(json.loads(line)) for line in printed.out.splitlines()] == [{"word", "score"}] * 2
    arguments = ["w3", "w3", "w4", "--top-k", "1", "--with-inputs", "--model", str(tmp_path / "words.vec")]
    assert run(["words", "analogy", *arguments]) == 0
    printed = capfd.readouterr()
    assert printed.err == "w3 - w3 + w4\n"
    assert json.loads(printed.out) == {"word": "w4", "score": pytest.approx(1, abs=1e-6)}


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="needs ../shared/data/word_benchmarks")
def test_input_embeddings_of_a_sentence_encoder_score_on_wordsim():
    encoder = open_words("all-MiniLM-L6-v2")
    (score,) = score_benchmark(encoder, BENCHMARKS / "word-similarity/monolingual/en/wordsim353-sim.csv")
    assert score.num_rows == 203 and score.num_covered == 190
    assert score.value == pytest.approx(0.797, abs=0.002)
    with pytest.raises(UsageError, match="has no vector"):
        encoder.vector("[CLS]")
