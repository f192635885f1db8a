"""Clusters of texts: every method, names, bad input, and the commands `pairs` and `cluster`."""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bertkit import find_clusters
from bertkit.cli import run
from bertkit.clusters import METHODS, ClusterOptions
from bertkit.clusters.names import class_words
from bertkit.errors import DataError, UsageError

WORDS = {"money": ("bank", "loan", "credit"), "weather": ("rain", "snow", "cloud"), "music": ("piano", "song", "choir")}
NUMBERS = {"money": 17, "weather": 13, "music": 11}


@pytest.fixture
def topics() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Shuffled texts of three topics, vectors around three directions, and the topic of each."""
    rng = np.random.default_rng(5)
    texts, vectors, labels = [], [], []
    for number, (topic, words) in enumerate(WORDS.items()):
        for index in range(NUMBERS[topic]):
            texts.append(f"the {rng.choice(words)} and the {topic} {index}")
            vectors.append(np.eye(7)[number] + 0.1 * rng.standard_normal(7))
            labels.append(number)
    order = rng.permutation(len(texts))
    vectors = np.array(vectors, np.float32)[order]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [texts[row] for row in order], vectors, np.array(labels)[order]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Cafe\u0301 cafe\u0301", ["café"]),
        ("हिन्दी में की", ["की", "में", "हिन्दी"]),
        ("❤️great t-shirt 1️⃣ m² don't_ab", ["ab", "don't", "great", "shirt"]),
        ("rock-’n’-roll x-ray's 4x4", ["ray's", "rock", "roll"]),
    ],
)
def test_words_of_names_in_every_script(text: str, words: list[str]) -> None:
    assert sorted(class_words([[text], ["other words"]], 9)[0]) == sorted(words)


@pytest.mark.full(sample=3)
@pytest.mark.parametrize("method", METHODS)
def test_each_method_finds_three_topics_and_names_them(method: str, topics: tuple) -> None:
    texts, vectors, labels = topics
    number = 3 if method in ("kmeans", "agglomerative") else None
    threshold = 0.8 if method in ("communities", "duplicates") else None
    clusters = find_clusters(texts, vectors, ClusterOptions(method, threshold, 5, number))
    assert [len(cluster.rows) for cluster in clusters] == [17, 13, 11]
    for topic, (cluster, word) in enumerate(zip(clusters, WORDS, strict=True)):
        assert (labels[cluster.rows] == topic).all()
        assert cluster.name.split()[0] == word and not {"the", "and"} & set(cluster.name.split()[:3])
        assert len(cluster.typical) == 3 and set(cluster.typical) <= {texts[row] for row in cluster.rows}


@pytest.mark.parametrize("method", METHODS)
def test_few_texts(method: str) -> None:
    number = 1 if method in ("kmeans", "agglomerative") else None
    clusters = find_clusters(["one"], np.ones((1, 1), np.float32), ClusterOptions(method, num_clusters=number))
    assert len(clusters) == (number or 0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"method": "magic"}, "expected one of communities"),
        ({"method": "kmeans"}, "requires num_clusters"),
        ({"num_clusters": 3}, "omit num_clusters"),
        ({"method": "density", "threshold": 0.5}, "has no threshold"),
        ({"method": "duplicates", "min_size": 0}, "min_size=0: expected at least 1"),
        ({"method": "kmeans", "num_clusters": 2, "min_size": -3}, "min_size=-3: expected at least 1"),
        ({"method": "kmeans", "num_clusters": 2.5}, "num_clusters=2.5: expected an int"),
        ({"min_size": True}, "min_size=True: expected an int"),
        ({"method": "kmeans", "num_clusters": 2, "seed": -1}, "seed=-1: expected an integer from 0"),
        ({"method": "kmeans", "num_clusters": 2, "seed": 1.5}, "seed=1.5: expected an integer from 0"),
    ],
)
def test_options_that_do_not_fit_raise(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClusterOptions(**options)


@pytest.mark.parametrize("method", METHODS)
def test_vectors_of_any_length_are_compared_by_their_cosine(method: str, topics: tuple) -> None:
    texts, vectors, _ = topics
    options = ClusterOptions(method, num_clusters=3 if method in ("kmeans", "agglomerative") else None)
    expected = find_clusters(texts, vectors, options)
    longer = vectors * np.linspace(0.2, 9, len(vectors), dtype=np.float32)[:, None]
    for scaled in (longer, longer.astype(np.float64)):
        found = find_clusters(texts, scaled, options)
        assert [one.rows.tolist() for one in found] == [one.rows.tolist() for one in expected]
        assert [one.typical for one in found] == [one.typical for one in expected]


def test_more_clusters_than_texts_and_other_numbers_raise() -> None:
    with pytest.raises(UsageError, match="num_clusters=5, but there are 2 texts"):
        find_clusters(["a", "b"], np.eye(2), ClusterOptions("kmeans", num_clusters=5))
    with pytest.raises(UsageError, match="2 texts and 3 vectors"):
        find_clusters(["a", "b"], np.eye(3))
    assert len(find_clusters(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], ClusterOptions(min_size=1))) == 2  # type: ignore


@pytest.mark.parametrize("method", METHODS)
def test_vectors_that_cannot_be_compared_raise(method: str) -> None:
    options = ClusterOptions(method, num_clusters=1 if method in ("kmeans", "agglomerative") else None)
    with pytest.raises(DataError, match="vector 1 has a component that is not finite"):
        find_clusters(["a", "b"], np.float32([[1, 0], [np.nan, 1]]), options)
    with pytest.raises(UsageError, match=r"got shape \(2,\)"):
        find_clusters(["a", "b"], np.ones(2, np.float32), options)


def test_names_of_many_clusters_take_linear_time() -> None:
    letters = str.maketrans("0123456789", "abcdefghij")
    classes = [[f"{kind}{str(number).translate(letters)}" for kind in "xyz"] for number in range(3_000)]
    started = time.process_time()
    names = class_words(classes, 1)
    assert time.process_time() - started < 1.5  # seconds; 0.1 on one core, 7 if words are counted anew for each class
    assert names[7] == ["xh"]


def test_vectors_of_zeros_are_in_no_agglomerative_cluster(topics: tuple) -> None:
    texts, vectors, _ = topics
    expected = find_clusters(texts, vectors, ClusterOptions("agglomerative", num_clusters=3))
    found = find_clusters(
        ["", *texts], np.pad(vectors, [(1, 0), (0, 0)]), ClusterOptions("agglomerative", num_clusters=3)
    )
    assert [(one.rows - 1).tolist() for one in found] == [one.rows.tolist() for one in expected]
    with pytest.raises(UsageError, match="num_clusters=2, but only 1 of 2 vectors are not zero"):
        find_clusters(["a", "b"], np.float32([[1], [0]]), ClusterOptions("agglomerative", num_clusters=2))


def test_rows_of_a_pandas_column_are_positions(topics: tuple) -> None:
    texts, vectors, _ = topics
    column = pd.Series(texts, index=np.arange(len(texts))[::-1])
    names, typical = zip(*((one.name, one.typical) for one in find_clusters(texts, vectors)), strict=True)
    found = find_clusters(column, vectors)  # pyrefly: ignore
    assert tuple(one.name for one in found) == names and tuple(one.typical for one in found) == typical


def test_commands(tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "a joy from start to finish",
        "dull and tedious",
        "a joy from start to finish!",
        "warm",
        "dull and tedious",
    ]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n")
    arguments = ["--input", str(tmp_path / "texts.txt"), "--model", str(encoder)]
    assert run(["pairs", *arguments, "--top", "3"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 3 and rows[0]["row_a"] == 1 and rows[0]["row_b"] == 4
    assert rows[0]["score"] == pytest.approx(1, abs=1e-6)
    assert rows[0]["text_a"] == rows[0]["text_b"] == "dull and tedious"
    output = tmp_path / "clusters.jsonl"
    assert run(["cluster", *arguments, "--method", "duplicates", "--threshold", "0.9999", "-o", str(output)]) == 0
    (group,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert group["size"] == 2 and group["name"] == "and dull tedious"
    numbers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["text"] for row in numbers] == lines and [row["cluster"] for row in numbers] == [None, 0, None, None, 0]
    for wrong, message in (
        (["pairs", *arguments, "--top", "0"], "--top 0: expected an int of at least 1"),
        (
            ["cluster", *arguments, "--num-clusters", "3"],
            "method communities finds the number of clusters itself: omit --num-clusters",
        ),
    ):
        assert run(wrong) == 2
        errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bertkit: ")]
        assert errors == [f"bertkit: {message}"]
    (tmp_path / "texts.txt").write_text("warm\n\n\U0001f642\n")
    assert run(["pairs", *arguments, "--min-score", "1.1"]) == 0
    empty, unknown, none = capsys.readouterr().err.splitlines()
    assert empty == "2 texts were empty, or have no known token" and unknown.startswith("1 of 11 tokens are unknown")
    assert none == "3 texts have no pair with a cosine of at least 1.1"
