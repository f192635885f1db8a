"""`bertkit inspect contrast`: static and contextual vectors of a word in two texts."""

import json
from itertools import pairwise

import numpy as np
import pytest
from word2vec_files import write_word2vec

import bertkit
from bertkit.cli import run
from bertkit.errors import UsageError
from bertkit.inspection import inspect_contrast
from bertkit.words import StaticEncoder

TEXTS = ("He will get scared", "She will get the drinks, or get out")
BASELINE = ["The cat sat there.", "Stocks fell again on Monday.", "A dog sleeps.", "It rains in the hills.", ""]


@pytest.fixture(scope="module")
def model():
    return bertkit.load("all-MiniLM-L6-v2", device="cpu")


@pytest.fixture(scope="module")
def view(model):
    return inspect_contrast(model, TEXTS, "GET", BASELINE)


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.full
def test_vectors_equal_those_of_the_network(model, view):
    output = [model.encoder(bertkit.collate([model.tokenizer.encode(text)]), with_hidden_states=True) for text in TEXTS]
    states = [[layer.detach().numpy() for layer in one.hidden_states] for one in output]
    assert view.contextual_word.shape == (7, 2, 384)
    for layer in range(7):
        for text in range(2):
            np.testing.assert_allclose(view.contextual_word[layer, text], states[text][layer][3], atol=1e-5)
            np.testing.assert_allclose(view.contextual_cls[layer, text], states[text][layer][0], atol=1e-5)
            np.testing.assert_allclose(view.contextual_mean[layer, text], states[text][layer].mean(axis=0), atol=1e-5)
    embeddings = model.encoder.embeddings.word.weight.detach().numpy()
    ids = view.input_ids[0][1:-1]
    np.testing.assert_allclose(view.static_word, embeddings[ids[2]], atol=1e-6)
    np.testing.assert_allclose(view.static_averages[0], embeddings[ids].mean(axis=0), atol=1e-6)
    assert view.tokens[0] == ["[CLS]", "he", "will", "get", "scared", "[SEP]"]


def test_baselines_are_the_random_pairs_of_the_same_space(model, view):
    rows = {(one.space, one.compared): one for one in view.contrasts}
    assert rows["static", "word"].cosine == pytest.approx(1)
    last = model.encoder(bertkit.collate([model.tokenizer.encode(text) for text in BASELINE[:4]])).last_hidden_state
    ends = np.cumsum([0, *(len(model.tokenizer.encode(text)) for text in BASELINE[:4])])
    means = [last[a:b].mean(dim=0).detach().numpy() for a, b in pairwise(ends)]
    pairs = [cosine(means[a], means[b]) for a in range(4) for b in range(a)]
    contrast = rows["layer 6", "mean of tokens"]
    assert contrast.num_pairs == 6
    assert contrast.baseline == pytest.approx(np.mean(pairs), abs=1e-5)
    assert contrast.cosine == pytest.approx(cosine(*view.contextual_mean[6]), abs=1e-6)
    assert contrast.percentile == pytest.approx(100 * np.mean(np.array(pairs) < contrast.cosine))
    assert rows["layer 0", "[CLS]"].percentile == pytest.approx(50)  # the same vector in every text


def test_first_token_is_compared_with_the_words_of_its_own_text(model, view):
    rows = {(one.space, one.compared): one for one in view.contrasts}
    output = [model.encoder(bertkit.collate([model.tokenizer.encode(text)])) for text in (*TEXTS, *BASELINE[:4])]
    states = [one.last_hidden_state.detach().numpy() for one in output]
    first, words = [one[0] for one in states], [one[1:-1].mean(axis=0) for one in states]
    for index in range(2):
        contrast = rows["layer 6", f"[CLS] and words of text {index + 1}"]
        assert contrast.cosine == pytest.approx(cosine(first[index], words[index]), abs=1e-5)
        others = [cosine(first[a], words[b]) for a in range(2, 6) for b in range(2, 6) if a != b]
        assert contrast.num_pairs == 12 and contrast.baseline == pytest.approx(np.mean(others), abs=1e-5)
        assert contrast.percentile == pytest.approx(100 * np.mean(np.array(others) < contrast.cosine))
        np.testing.assert_allclose(view.contextual_words[6, index], words[index], atol=1e-5)


def test_other_static_vectors_and_unknown_words(model):
    encoder = StaticEncoder.of_words(["get", "will", "the", "cat", "dog"], np.eye(5))
    view = inspect_contrast(model, TEXTS, "get", BASELINE, static=encoder)
    assert view.num_unknown == 7
    np.testing.assert_array_equal(view.static_word, np.eye(5)[0])
    with pytest.raises(UsageError, match="'scared' has no static vector"):
        inspect_contrast(model, (TEXTS[0], TEXTS[0]), "scared", BASELINE, static=encoder)


@pytest.mark.full
def test_texts_for_random_pairs_that_are_too_long_are_left_out(model, view):
    assert inspect_contrast(model, TEXTS, "GET", [*BASELINE, "a cat " * 300]).contrasts == view.contrasts


def test_bad_input_raises(model):
    with pytest.raises(UsageError, match="lacks the word 'drinks'"):
        inspect_contrast(model, TEXTS, "drinks", BASELINE)
    with pytest.raises(UsageError, match="expected at least three others"):
        inspect_contrast(model, TEXTS, "get", [TEXTS[0], "Another text.", " "])
    with pytest.raises(UsageError, match="have no words"):
        inspect_contrast(model, TEXTS, "get", [",", "!", ", !"])


@pytest.mark.full
def test_page_and_the_lines(tmp_path, capfd, view):
    view.html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Static vectors" in page and "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    (tmp_path / "base.txt").write_text("\n".join(BASELINE[:4]))
    write_word2vec(tmp_path / "w.vec", ["get", "will", "sat", "dog"], np.eye(4, 7))
    arguments = ["inspect", "contrast", *TEXTS, "--word", "get", "--baseline", str(tmp_path / "base.txt")]
    assert run([*arguments, "--static", str(tmp_path / "w.vec")]) == 0
    printed = capfd.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [line["space"] for line in lines[:2]] == ["static", "static"] and len(lines) == 2 + 7 * 5
    assert "have no static vector" in printed.err
    assert run([*arguments, "--static", str(tmp_path / "w.vec"), "--out", str(tmp_path / "again.html")]) == 0
    assert capfd.readouterr().out == printed.out and (tmp_path / "again.html").is_file()
    assert run(["inspect", "contrast", *TEXTS, "--word", "drinks", "--baseline", str(tmp_path / "base.txt")]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.filterwarnings("error")
def test_word_without_tokens_is_refused(model):
    with pytest.raises(UsageError, match="has no tokens; omit the word"):
        inspect_contrast(model, ("a \u200b cat", "the \u200b dog"), "\u200b", BASELINE)
