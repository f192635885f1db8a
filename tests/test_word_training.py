"""Training of word vectors: equal to a plain implementation, bit-identical on one thread, also after resuming."""

import json
import shutil
import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit import InferenceReport, StaticEncoder
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.randomness import key_of, random_bits
from bertkit.training import Outcome
from bertkit.words.ngrams import ngram_rows, units_of
from bertkit.words.opening import open_words
from bertkit.words.settings import WordTraining
from bertkit.words.skip_gram import alias_table, train_sentences
from bertkit.words.training import WordCorpus, WordVectorTraining, _encoder, read_corpus
from bertkit.words.window_step import scratch

FOODS, TOOLS = "bread cheese soup apple rice".split(), "hammer saw drill nail screw".split()


def topics(number: int, seed: int = 0) -> list[str]:
    """Sentences, each about food or about tools."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice((FOODS, TOOLS)[index % 2], 8)) + " ." for index in range(number)]


def trained(corpus: WordCorpus, settings: WordTraining) -> tuple[StaticEncoder, Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        outcome = WordVectorTraining(Path(folder) / "out", settings, log_line=lambda line: None).start(corpus)
        return open_words(Path(folder) / "out"), outcome


def plain_training(ids, starts, seed, keep, shares, aliases, window, negatives, is_cbow, rate, units, inputs, outputs):
    """Word2vec window by window, in numpy and float64, with the same random numbers."""
    for sentence in range(len(starts) - 1):
        key, counter, kept = np.uint64(key_of(seed, 0, sentence)), iter(range(10**9)), []
        for word in ids[starts[sentence] : starts[sentence + 1]]:
            if keep[word] >= 1 or (int(random_bits(key, next(counter))) >> 40) / 2**24 < keep[word]:
                kept.append(word)
        for center, target in enumerate(kept):
            reach = window - ((int(random_bits(key, next(counter))) >> 32) * window >> 32)
            around = [other for other in range(center - reach, center + reach + 1) if 0 <= other < len(kept) != center]
            around = [kept[other] for other in around if other != center]
            if not around:
                continue
            drawn = [target]
            for _ in range(negatives):
                bits = int(random_bits(key, next(counter)))
                word = (bits >> 32) * len(keep) >> 32
                word = word if (bits & 0xFFFFFF) / 2**24 < shares[word] else aliases[word]
                drawn += [word] if word != target else []
            groups = [around] if is_cbow else [[word] for word in around]
            rows = [[row for word in group for row in units[word]] for group in groups]
            hidden = np.stack([inputs[one].mean(axis=0) for one in rows])
            scores = hidden @ outputs[drawn].T
            steps = rate * (np.eye(1, len(drawn)) - 1 / (1 + np.exp(-scores)))
            changes = steps @ outputs[drawn]
            np.add.at(outputs, drawn, steps.T @ hidden)
            for one, change in zip(rows, changes, strict=True):
                np.add.at(inputs, one, change)


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("is_cbow", [False, True])
@pytest.mark.parametrize("with_ngrams", [False, True])
@pytest.mark.parametrize(("dim", "window", "negatives"), [(7, 4, 5), (16, 1, 1), (37, 3, 10)])
def test_training_equals_a_plain_implementation(is_cbow, with_ngrams, dim, window, negatives):
    random = np.random.default_rng(dim)
    lengths, num_words = [1, 13, 2, 29, 5], 11
    starts, ids = np.cumsum([0, *lengths]), random.integers(num_words, size=sum(lengths)).astype(np.int32)
    unit_starts, units = units_of([f"word{number}" for number in range(num_words)], False)
    if with_ngrams:
        rows = [[number, num_words + number % 3, num_words + 3] for number in range(num_words)]
        unit_starts, units = np.arange(0, 3 * num_words + 1, 3), np.array(rows, np.int32).ravel()
    shares, aliases = alias_table(random.random(num_words))
    keep = np.where(np.arange(num_words) % 2, 0.6, 1).astype(np.float32)
    width = -(-dim // 16) * 16
    inputs, outputs = np.zeros((num_words + 4, width), np.float32), np.zeros((num_words, width), np.float32)
    for matrix in (inputs, outputs):
        matrix[:, :dim] = random.normal(size=(len(matrix), dim)) / 2
    expected = inputs[:, :dim].astype(np.float64), outputs[:, :dim].astype(np.float64)
    owned = [units[a:b] for a, b in pairwise(unit_starts)]
    plain_training(ids, starts, 3, keep, shares, aliases, window, negatives, is_cbow, 0.05, owned, *expected)
    train_sentences(
        ids, starts, 0, 5, 0, 3, keep, shares, aliases, window, negatives, is_cbow, 0.05, unit_starts, units, inputs,
        outputs, np.empty(29, np.int32), np.empty(1 + negatives, np.int32),
        *scratch(1 if is_cbow else 2 * window, 1 + negatives, width),
    )  # fmt: skip
    np.testing.assert_allclose(inputs[:, :dim], expected[0], atol=2e-5)
    np.testing.assert_allclose(outputs[:, :dim], expected[1], atol=2e-5)
    assert not inputs[:, dim:].any() and not outputs[:, dim:].any()


def test_alias_table_draws_in_proportion():
    weights = np.random.default_rng(1).random(37) ** 3
    shares, aliases = alias_table(weights)
    drawn = shares / 37 + np.bincount(aliases, (1 - shares) / 37, 37)
    np.testing.assert_allclose(drawn, weights / weights.sum(), atol=1e-7)


def test_rows_of_ngrams_equal_gensim():
    fasttext = pytest.importorskip("gensim.models.fasttext")
    for word in ("love", "a", "größer", "naïve-té", "日本語", "unbelievably"):
        assert sorted(ngram_rows(word, 1_000)) == sorted(fasttext.ft_ngram_hashes(word, 3, 6, 1_000))


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
@pytest.mark.parametrize("ngrams", [False, True])
def test_words_of_a_topic_are_near_each_other(method, ngrams):
    corpus = read_corpus(topics(1_000), 5)
    settings = WordTraining(method=method, dimensions=20, num_epochs=12, subsample=0, learning_rate=0.05, ngrams=ngrams)
    encoder, report = trained(corpus, settings)
    vectors = np.stack([encoder.vector(word) for word in FOODS + TOOLS])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    assert cosines[:5, :5].min() > cosines[:5, 5:].max() + 0.1
    assert report.metrics["num_words"] == 11 and report.metrics["num_tokens"] == 9_000


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
def test_one_thread_gives_the_same_bits_also_after_a_stop(tmp_path, monkeypatch, one_thread, method):
    monkeypatch.setattr("bertkit.words.training._WORDS_OF_A_PART", 40)
    monkeypatch.setattr("bertkit.words.job.SAVE_SECONDS", 0)
    corpus, settings = read_corpus(topics(700), 5), WordTraining(method=method, dimensions=9, num_epochs=2)
    whole, again = (trained(corpus, settings)[0].vectors for _ in range(2))
    np.testing.assert_array_equal(whole, again)
    run, stopped = WordVectorTraining(tmp_path / "run", settings, log_line=lambda line: None), []

    def stop(number):
        stopped.append(number)
        if len(stopped) == 200:
            raise KeyboardInterrupt

    monkeypatch.setattr("bertkit.words.job.tqdm.update", lambda bar, number: stop(number))
    with pytest.raises(KeyboardInterrupt):
        run.start(corpus)
    assert (tmp_path / "run/run/state.safetensors").is_file()
    other = WordVectorTraining(tmp_path / "run", WordTraining(method=method, dimensions=9, num_epochs=2, seed=1))
    with pytest.raises(UsageError, match=r"was started with other settings .*seed=0, now 1"):
        other.start(corpus, resume=True)
    with pytest.raises(UsageError, match=r"was started with other settings .*content of the training data"):
        run.start(read_corpus(topics(600), 5), resume=True)
    monkeypatch.setattr("bertkit.words.job.SAVE_SECONDS", 60)
    calls = iter([False, True])
    outcome = run.start(corpus, resume=True, should_stop=lambda: next(calls))
    assert (outcome.reason, outcome.step) == ("stopped", 256)
    outcome = run.start(corpus, resume=True)
    assert outcome.reason == "finished" and len(stopped) < 2 * 200 + 64
    np.testing.assert_array_equal(open_words(tmp_path / "run").vectors, whole)
    assert run.start(corpus, resume=True) == outcome


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
def test_several_threads_differ_little_in_quality(monkeypatch, one_thread, method):
    monkeypatch.setattr("bertkit.words.training._WORDS_OF_A_PART", 200)
    corpus = read_corpus(topics(1_000), 5)
    settings = WordTraining(method=method, dimensions=20, num_epochs=12, subsample=0, learning_rate=0.05)
    separations = []
    for num_threads in (1, 3):
        torch.set_num_threads(num_threads)
        encoder, report = trained(corpus, settings)
        assert report.metrics["num_threads"] == num_threads
        vectors = np.stack([encoder.vector(word) for word in FOODS + TOOLS])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = vectors @ vectors.T
        within = [cosines[:5, :5][np.triu_indices(5, 1)], cosines[5:, 5:][np.triu_indices(5, 1)]]
        assert np.min(within) > cosines[:5, 5:].max() + 0.5
        separations.append(np.mean(within) - cosines[:5, 5:].mean())
    # Single cosines differ by up to 0.26 on busy cores. The means fell by at most 0.012 in 80 trainings.
    assert separations[1] > separations[0] - 0.05


@pytest.mark.parametrize("dim", [1, 3, 16])
def test_means_of_ngrams_are_the_same_in_slices(monkeypatch, dim):
    random = np.random.default_rng(dim)
    words = ["".join(random.choice(list("abcd"), random.integers(1, 30))) + str(number) for number in range(57)]
    counts = random.integers(1, 9, 57)
    starts = np.concatenate([[0], np.cumsum(counts)])
    inputs = random.standard_normal((500, dim)).astype(np.float32)
    rows = random.integers(0, 500, starts[-1])
    expected = np.add.reduceat(inputs[rows], starts[:-1], axis=0) / counts[:, None].astype(np.float32)
    monkeypatch.setattr("bertkit.words.training._WORDS_AT_A_TIME", 10)
    encoder = _encoder(words, inputs, (starts, rows), WordTraining(ngrams=True))
    np.testing.assert_array_equal(encoder.vectors, expected)


def test_unknown_words_have_vectors_of_ngrams(tmp_path):
    encoder, _ = trained(read_corpus(topics(200), 5), WordTraining(dimensions=6, ngrams=True))
    encoder.save(tmp_path / "model")
    for one in (encoder, StaticEncoder.open(tmp_path / "model")):
        report = InferenceReport()
        vector = one.embed("breads cheese", report=report)
        np.testing.assert_allclose(vector, (one.vector("breads") + one.vector("cheese")) / 2, atol=1e-6)
        assert report.num_unknown == 0
        np.testing.assert_allclose(one.vector("breads"), encoder.vector("breads"), atol=1e-6)
    assert encoder.vector("breads") @ encoder.vector("bread") > 0


def test_training_on_the_command_line(tmp_path, capfd):
    (tmp_path / "texts.txt").write_text("\n".join(topics(300)))
    arguments = ["words", "train", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "model")]
    assert run([*arguments, "--dimensions", "8", "--num-epochs", "1"]) == 0
    assert '"num_words": 11' in capfd.readouterr().out
    assert run(["words", "nearest", "bread", "--model", str(tmp_path / "model")]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 10
    for extra, message in (
        ([], "already contains a run: pass --resume"),
        (["--window", "0"], "--window 0: expected an integer of at least 1"),
        (["--method", "glove"], "glove"),
        (["--seed", "-1"], "--seed -1: expected an integer from 0"),
        (["--learning-rate", "nan"], "--learning-rate nan: expected a finite number"),
        (["--subsample", "-1"], "--subsample -1"),
    ):
        assert run([*arguments, *extra]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert message in line
    with pytest.raises(DataError, match="no word occurs 5 times"):
        read_corpus(["a few words"], 5)


def test_text_that_is_not_read_is_reported(tmp_path, capfd):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_bytes("\n".join(topics(40)).encode() + b"\ncaf\xe9 au lait .\n")
    (corpus / "b.jsonl").write_text('{"text": "bread zebra"}\nno json\n{"text": 5}\n')
    (corpus / "c.md").touch()
    assert run(["words", "train", str(corpus), "--out", str(tmp_path / "model"), "--dimensions", "8"]) == 0
    skipped, unreadable, rare = capfd.readouterr().err.splitlines()
    assert f"files skipped because of their extension: 1 ({corpus / 'c.md'})" in skipped
    assert "could not be read: 3, the first: " in unreadable and "a.txt, line 41: the sentence holds" in unreadable
    num_words = 1 + len(StaticEncoder.open(tmp_path / "model").words)
    assert rare.startswith(f"1 of {num_words} words get no vector, as they occur less than 5 times")


def test_vectors_that_are_not_finite_raise():
    corpus = read_corpus(topics(40), 1)
    with pytest.raises(UsageError, match=r"learning_rate=1e\+30: training diverged"):
        trained(corpus, WordTraining(dimensions=8, learning_rate=1e30))


def test_words_that_are_too_long_to_be_found_in_a_text_are_not_trained():
    corpus = read_corpus(["cat " + "a" * 101, "dog " + "b" * 100] * 3, 1)
    assert corpus.words == ["b" * 100, "cat", "dog"] and len(corpus.ids) == corpus.counts.sum()
    with pytest.raises(DataError, match="no word occurs 1 times"):
        read_corpus(["a" * 101], 1)


def test_a_window_of_the_whole_sentence_takes_little_memory(monkeypatch, one_thread):
    rows = []
    monkeypatch.setattr("bertkit.words.training.scratch", lambda *sizes: rows.append(sizes[0]) or scratch(*sizes))
    corpus = read_corpus(["the cat sat", "a dog ran on the mat"], 1)
    vectors = [
        trained(corpus, WordTraining(window=window, dimensions=5, min_count=1))[0].vectors for window in (6, 10**9)
    ]
    assert max(rows) == 6 and np.isfinite(vectors).all()


def test_folders_are_checked_before_long_work(tmp_path, capfd, monkeypatch):
    (tmp_path / "texts.txt").write_text("\n".join(topics(40)))
    (tmp_path / "file").touch()
    for command in (["train", "missing.txt"], ["train-pairs", "missing.tsv"], ["extract", "--model", "missing"]):
        assert run(["words", *command, "--out", str(tmp_path / "file" / "vectors")]) == 2
        assert "file is not a folder; choose another path" in capfd.readouterr().err
    assert run(["words", "train", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "new" / "vectors")]) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["vectors"]


def test_state_is_kept_until_the_vectors_are_saved(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("bertkit.words.job.SAVE_SECONDS", 0)
    (tmp_path / "texts.txt").write_text("\n".join(topics(40)))
    state, arguments = tmp_path / "model/run/state.safetensors", ["words", "train", str(tmp_path / "texts.txt")]
    arguments += ["--out", str(tmp_path / "model"), "--resume"]
    with monkeypatch.context() as patch:
        patch.setattr(StaticEncoder, "save", lambda *_, **__: (_ for _ in ()).throw(DataError("the disk is full")))
        assert run(arguments) == 2 and state.is_file()
    assert run(arguments) == 0 and not state.exists()
    assert {*json.loads((tmp_path / "model/run/metrics.jsonl").read_text().splitlines()[0])} >= {"settings", "versions"}
    shutil.rmtree(tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr(StaticEncoder, "save", lambda *_, **__: (_ for _ in ()).throw(DataError("the disk is full")))
        assert run(arguments) == 2
    state.write_bytes(b"")
    capfd.readouterr()
    assert run(arguments) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "state.safetensors cannot be read as the state of a run" in line and "remove the folder" in line


def test_stopped_run_is_resumed(tmp_path, capfd, monkeypatch):
    (tmp_path / "texts.txt").write_text("\n".join(topics(40)))
    arguments = ["words", "train", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "model")]

    @contextmanager
    def stopped(log_line):
        yield lambda: True

    with monkeypatch.context() as patch:
        patch.setattr("bertkit.training.stop_signals", stopped)
        assert run(arguments) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["reason"] == "stopped" and "resume with: bertkit words train" in printed.err
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["run"]
    assert run(arguments) == 2 and "already contains a run: pass --resume" in capfd.readouterr().err
    assert run([*arguments, "--resume"]) == 0
    assert json.loads(capfd.readouterr().out)["reason"] == "finished"
    assert run([*arguments, "--resume"]) == 0
    assert "model is finished already" in capfd.readouterr().err
    assert run([*arguments, "--minutes", "1"]) == 2
    assert "Unknown option" in capfd.readouterr().err


def test_pairs_without_a_positive_raise(tmp_path, capfd):
    (tmp_path / "rows.txt").write_text("the cat\na dog\n")
    assert run(["words", "train-pairs", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "model")]) == 2
    assert "rows.txt, line 1: has no second text" in capfd.readouterr().err
