"""Comparison of models: the context each depends on, and a small comparison from files to table."""

import json
import re
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.spatial
import torch
from random_models import randomize, vocabulary_tokens
from sklearn.neighbors import NearestCentroid

from bertkit import BertConfig, Tokenizer
from bertkit.architectures import Network
from bertkit.batch import batch_of_ids
from bertkit.cli import run
from bertkit.comparison import MODELS, Comparison, ComparisonSettings
from bertkit.comparison.predictors import hidden_log_probs, text_scores
from bertkit.errors import DataError
from bertkit.inspection import LabeledWords
from bertkit.model import Model
from bertkit.objectives import EveryToken, SpecialIds
from bertkit.objectives.sequences import Sequences

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = BertConfig(99, 24, 2, 3, 37, max_position_embeddings=32)


def compare_directions(folder: Path, *options: str) -> list[str]:
    """The command for the corpus of a folder."""
    return ["compare-directions", "--corpus", str(folder / "corpus.txt"), "--out", str(folder / "out"), *options]


def network_of(name: str):
    network = MODELS[name].network(CONFIG, 1)
    randomize(network, 2)
    return network.eval()


@pytest.mark.parametrize("name", list(MODELS))
def test_context_of_each_model(name: str) -> None:
    network, draw = network_of(name), np.random.default_rng(1)
    row, at = draw.integers(5, 99, 20), np.array([8])

    def log_probs(row: np.ndarray) -> torch.Tensor:
        return hidden_log_probs(network, 4, [row], at)

    before = log_probs(row)
    for index in range(20):
        changed = row.copy()
        changed[index] = 5 + (row[index] - 4) % 90
        depends = not torch.allclose(log_probs(changed), before, atol=1e-6)
        sees = {
            "bert": index != 8,
            "left-to-right": index < 8,
            "right-to-left": index > 8,
            "shallow-bidirectional": index != 8,
            "static": 0 < abs(index - 8) <= 5,
        }[name]
        assert depends == sees, index


@pytest.mark.parametrize("name", list(MODELS))
def test_predictions_do_not_depend_on_the_batch(name: str) -> None:
    network, draw = network_of(name), np.random.default_rng(1)
    rows = [draw.integers(5, 99, length) for length in (5, 20, 3, 11)]
    at = np.array([1, 9, 1, 9])
    together = hidden_log_probs(network, 4, rows, at)
    for number, row in enumerate(rows):
        alone = hidden_log_probs(network, 4, [row], at[number : number + 1])[0]
        torch.testing.assert_close(alone, together[number], rtol=1e-4, atol=1e-4)
    batch = batch_of_ids(rows)
    assert batch.seqlens == [5, 20, 3, 11]


def test_scores_of_texts_are_pseudo_log_likelihoods() -> None:
    tokenizer = Tokenizer.from_vocab(vocabulary_tokens(99))
    model = Model.create(CONFIG, tokenizer, ["masked_lm"])
    randomize(model.network, 3)
    model.mark_trained()
    texts = ["the cat sat", "walk and talk", "a"]
    expected = model.pseudo_log_likelihood(texts)
    np.testing.assert_allclose(text_scores(model.network, tokenizer, texts), expected, rtol=1e-4)
    assert isinstance(MODELS["bert"].network(CONFIG, 1), Network)


def test_every_token_is_predicted_but_special_ones() -> None:
    ids = np.array([2, 7, 8, 3, 2, 9, 3], np.int32)
    sequences = Sequences(ids, np.zeros_like(ids), np.array([0, 4, 7]), None)
    masked = EveryToken(SpecialIds(2, 3, 4))(sequences, 0.15, 0, np.arange(2))
    assert masked.positions.tolist() == [1, 2, 5] and masked.labels.tolist() == [7, 8, 9]
    assert masked.input_ids is ids


@pytest.mark.full
def test_comparison_from_files_to_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    draw = np.random.default_rng(1)
    words = "cat dog mat hat sat ran lay fast slow then".split()
    texts = ["\n".join(f"the {a} {b} on the {c} ." for a, b, c in draw.choice(words, (6, 3))) for _ in range(120)]
    (tmp_path / "corpus.txt").write_text("\n\n".join(texts))
    (tmp_path / "pairs.jsonl").write_text(
        json.dumps({"sentence_good": "the cat sat .", "sentence_bad": "cat the sat .", "UID": "order"}) + "\n"
    )
    arguments = compare_directions(tmp_path, "--num-steps", "3")
    arguments += ["--suite", str(tmp_path / "pairs.jsonl"), "--seeds", "0"]
    assert run([*arguments, "--models", "bert"]) == 0
    capsys.readouterr()
    lines, calls = list[str](), count()
    settings = ComparisonSettings(models=("bert", "static"), seeds=(0,)).changed(num_steps=3)
    stopped = Comparison(tmp_path / "stopped", [tmp_path / "corpus.txt"], settings, log_line=lines.append)
    assert [row["model"] for row in stopped.start(should_stop=lambda: next(calls) > 3)] == ["bert"]
    assert lines[-1] == "stopped: the table holds 1 of 2 results so far; --resume continues"
    arguments += ["--cloze", "the [MASK] sat .", "--word", "cat"]
    assert run(arguments) == 2
    assert "already contains a run" in capsys.readouterr().err
    assert run([*arguments, "--resume"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["model"] for row in rows] == [*MODELS]
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert "Accuracy on hidden tokens" in page
    assert "the same corpus and vocabulary, 3 steps for each seed (0)" in page and "probability of “cat”" in page
    for word, told in (("elephants", "unknown to"), ("cat dog", "2 tokens of")):
        assert run([*arguments[:-1], word, "--resume"]) == 2
        assert f"is {told} this vocabulary: expected one token" in capsys.readouterr().err
    for row in rows:
        assert row["seeds"] == 1 and row["steps"] == 3 and 0 <= row["cloze_accuracy"] <= 1
        assert 0 <= row["minimal_pairs"] <= 1 and 0 < row["word_prob"] < 1
    sizes = {row["model"]: row["parameters"] for row in rows}
    assert sizes["bert"] == sizes["left-to-right"] == sizes["right-to-left"]
    assert abs(sizes["shallow-bidirectional"] / sizes["bert"] - 1) < 0.1
    assert run([*arguments, "--resume", "--models", "elmo"]) == 2
    assert "models elmo: expected one or more of bert" in capsys.readouterr().err


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of benchmarks that measures frozen features."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    return import_module("frozen_features")


@pytest.mark.parametrize("name", list(MODELS))
def test_features_see_the_token_and_the_side_of_each_model(name: str, features: Any) -> None:
    network, tokenizer = network_of(name), Tokenizer.from_vocab(vocabulary_tokens(99))
    words = ["the", "cat", "sat"]
    text, spans = " ".join(words), [(0, 3), (4, 7), (8, 11)]

    def vectors_of(text: str) -> np.ndarray:
        vectors, labels = features.word_features(network, tokenizer, [LabeledWords(text, spans, ["a", "b", "c"])], 16)
        assert labels == ["a", "b", "c"]
        return vectors

    before = vectors_of(text)
    for changed in range(3):
        other = " ".join("dog" if number == changed else word for number, word in enumerate(words))
        depends = [not np.allclose(a, b, atol=1e-6) for a, b in zip(vectors_of(other), before, strict=True)]
        sees = {
            "left-to-right": [number >= changed for number in range(3)],
            "right-to-left": [number <= changed for number in range(3)],
            "static": [number == changed for number in range(3)],
        }.get(name, [True] * 3)
        assert depends == sees


def test_scores_of_features(features: Any) -> None:
    network, tokenizer = network_of("static"), Tokenizer.from_vocab(vocabulary_tokens(99))
    labeled = [LabeledWords("the cat", [(0, 3), (4, 7)], ["DET", "NOUN"]), LabeledWords("the dog", [(0, 3)], ["DET"])]
    probes = features.Probes(
        (labeled, labeled), [(labeled[:1], labeled[:1])], [("the cat", "the cat", 5.0), ("the", "dog", 0.0)]
    )
    scores = features.measure_features(network, tokenizer, probes, 16, 0)
    assert scores == {"parts_of_speech": 1.0, "senses": 1.0, "similarity": pytest.approx(1.0)}


def test_similarity_of_sentences_without_tokens_and_of_cut_ones(features: Any) -> None:
    """A mean over no tokens would be NaN, which ranks above every number."""
    network, tokenizer = network_of("static"), Tokenizer.from_vocab(vocabulary_tokens(99))
    pairs = [("the cat", "the cat", 5.0), ("\u200b", "dog", 0.0), ("the cat sat", "the cat ran", 5.0)]
    similarity = features.measure_features(network, tokenizer, features.Probes(pairs=pairs), 4, 0)
    assert similarity == {"similarity": pytest.approx(0.866, 1e-3)}
    (encoding, states), *_ = features.token_features(network, tokenizer, ["the cat sat"], 4)
    np.testing.assert_array_equal(features._mean_of_tokens(encoding, states), states[1:].mean(axis=0))


def test_nearest_senses_against_scikit_learn(features: Any) -> None:
    draw = np.random.default_rng(0)
    train, test, senses = draw.normal(size=(50, 7)), draw.normal(size=(30, 7)), draw.choice(["a", "b", "c"], 50)
    centroids = NearestCentroid().fit(train, senses).centroids_
    distances = scipy.spatial.distance.cdist(test, centroids, "cosine")
    assert features.nearest_senses(train, senses, test).tolist() == np.unique(senses)[distances.argmin(axis=1)].tolist()


def test_reads_senses(features: Any, tmp_path: Path) -> None:
    word = tmp_path / "bank"
    word.mkdir()
    for part in ("train", "test"):
        (word / f"{part}.data.txt").write_text("1\ta bank .\n0\tbank\n")
        (word / f"{part}.gold.txt").write_text("0\n1\n")
    ((train, test),) = features.read_senses(tmp_path)
    assert train == test and [one.words for one in train] == [["bank"], ["bank"]]
    assert [one.labels for one in train] == [["0"], ["1"]]
    (word / "test.data.txt").write_text("9\ta bank\n0\tbank\n")
    with pytest.raises(DataError, match=r"test.data.txt:1: .*expected the index of a word"):
        features.read_senses(tmp_path)
    (word / "test.gold.txt").write_text("0\n")
    with pytest.raises(DataError, match="2 texts and 1 senses in test"):
        features.read_senses(tmp_path)
    with pytest.raises(DataError, match="no senses"):
        features.read_senses(word)


@pytest.mark.parametrize(("option", "message"), [("--minutes", "--minutes 0"), ("--num-steps", "--num-steps -1")])
def test_no_training_time_is_refused_first(option: str, message: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "corpus.txt").write_text("the cat sat .\n\n" * 9)
    value = re.split("[ =]", message)[1]
    arguments = compare_directions(tmp_path, option, value)
    assert run(arguments) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


RUSSIAN = "кошка спит на ковре .\nсобака бежит домой .\n\n" * 9
NOVEL = "The cat sat on the mat. The dog ran home and was\nglad of it. Then it slept for hours on the floor\nof it." * 9


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (RUSSIAN, ["--size", "huge"], "size 'huge': expected one of tiny"),
        (RUSSIAN, ["--seeds", "0", "1", "0"], "--seeds [0, 1, 0]: expected different integers"),
        (RUSSIAN, ["--models", "bert", "bert"], "--models ['bert', 'bert']: expected different names"),
        (RUSSIAN, ["--limit", "3"], "--limit is the number of pairs of --suite"),
        (NOVEL, [], "corpus.txt: expected two or more documents"),
    ],
)
def test_what_cannot_be_compared_is_refused_first(
    text: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "corpus.txt").write_text(text)
    arguments = compare_directions(tmp_path)
    assert run([*arguments, "--num-steps", "1", *options]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.full
def test_short_documents_are_refused_before_training(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "corpus.txt").write_text("cat .\nsat .\n\n" * 9)
    arguments = compare_directions(tmp_path, "--num-steps", "1")
    assert run([*arguments, "--models", "static", "--seeds", "0"]) == 2
    assert "tokens, [CLS] and [SEP] included: expected at least 7" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("static-*"))


@pytest.mark.parametrize("option", ["--suite", "--cloze"])
def test_long_texts_are_refused_before_training(option: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "corpus.txt").write_text("the cat sat .\nthe mat is old .\n\n" * 9)
    (tmp_path / "suite.txt").write_text("cat the\n" + "the " * 150 + "\n")
    given = [str(tmp_path / "suite.txt")] if option == "--suite" else ["the [MASK] " + "cat " * 150, "--word", "cat"]
    arguments = compare_directions(tmp_path, "--num-steps", "1")
    assert run([*arguments, "--models", "static", "--seeds", "0", option, *given]) == 2
    assert "tokens, the compared models 128 positions: shorten it" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("static-*"))


@pytest.mark.full
@pytest.mark.parametrize("name", ["gru", "gru-attention", "transformer"])
def test_writers_of_the_benchmark_repeat_and_never_read_ahead_and_one_learns(name: str, monkeypatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    from letters_backwards import letters_of, measure_writer, new_writer

    letters, num_steps = letters_of(["The cat sat on the mat, the dog ran."] * 20), 120 if name == "transformer" else 5
    result = measure_writer(name, (letters, letters), 0, None, num_steps)
    assert result["steps"] == num_steps and (num_steps < 120 or result["exact"][0] > 0.2)
    writer = new_writer(name, 0).eval()
    again = new_writer(name, 0).state_dict()
    assert all(torch.equal(one, again[part]) for part, one in writer.state_dict().items())
    sources, before = torch.randint(0, 27, (2, 1, 9))
    changed = before.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 27
    with torch.no_grad():
        same = torch.isclose(writer(sources, before), writer(sources, changed), atol=1e-6).all(dim=-1)[0]
    assert same[:5].all() and not same[5]
