"""Training rows and test sets for sentence encoders, from ../shared/data."""

import csv
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sentence_systems import Data

from bertkit.tasks.metrics import number_results

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SHARE_OF_DUPLICATES = 0.3
FEWEST = 240  # rows, of whatever share
MOST_TEST = 2_000  # pairs of SICK


class Test(NamedTuple):
    """Texts to embed, and the labels that their vectors are scored with."""

    texts: list[str]
    pairs: list[tuple[int, int, float]]  # texts with a score; of retrieval a question, its paragraph, and 1


def sts(share: float) -> tuple[Data, Test]:
    """STS benchmark: scores of pairs, 0 to 5; tested on the test split."""
    train = [(row[5], row[6], float(row[4]) / 5) for row in _tabs("sts_benchmark/sts-train.csv")]
    test = _scored([(row[5], row[6], float(row[4])) for row in _tabs("sts_benchmark/sts-test.csv")])
    return Data(_part(train, share), test.texts), test


def nli(share: float) -> tuple[Data, Test]:
    """SICK: entailment labels of pairs; tested on the relatedness scores of the test split."""
    rows = [dict(zip(names, row, strict=False)) for names, *rest in [_tabs("sick2014/SICK_train.txt")] for row in rest]
    train = [(row["sentence_A"], row["sentence_B"], row["entailment_judgment"]) for row in rows]
    names, *lines = _tabs("sick2014/SICK_test_annotated.txt")
    rows = [dict(zip(names, line, strict=False)) for line in lines]
    pairs = [(row["sentence_A"], row["sentence_B"], float(row["relatedness_score"])) for row in rows]
    test = _scored(_part(pairs, MOST_TEST / len(pairs)))
    return Data(_part(train, share), test.texts), test


def duplicates(share: float) -> tuple[Data, Test]:
    """XQuAD: questions with their paragraphs, a part of them twice; tested on the articles of the other half."""
    articles = json.loads(_file("xquad/xquad.en.json").read_text(encoding="utf-8"))["data"]
    halves: list[list[tuple[str, str]]] = [[], []]
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            halves[number % 2] += [(question["question"], paragraph["context"]) for question in paragraph["qas"]]
    train = _part([(question, paragraph, None) for question, paragraph in halves[0]], share)
    draw = np.random.default_rng(0)
    again = draw.choice(len(train), round(SHARE_OF_DUPLICATES * len(train)), replace=False)
    numbers: dict[str, int] = {}
    pairs = [(numbers.setdefault(question, len(numbers)), numbers.setdefault(paragraph, len(numbers)), 1.0)
             for question, paragraph in halves[1]]  # fmt: skip
    return Data([*train, *(train[index] for index in again)], list(numbers)), Test(list(numbers), pairs)


def score(test: Test, vectors: np.ndarray, metric: str) -> float:
    """Spearman's correlation of cosines, or nDCG@10 of paragraphs for questions."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first, second, targets = (np.array(column) for column in zip(*test.pairs, strict=True))
    if metric == "spearman":
        cosines = (unit[first] * unit[second]).sum(axis=1).astype(np.float64)
        return float(number_results(targets, cosines, np.ones((1, len(cosines))))["spearman"][0])
    paragraphs = np.unique(second)
    scores = unit[first] @ unit[paragraphs].T
    ranks = (scores > (unit[first] * unit[second]).sum(axis=1, keepdims=True) + 1e-7).sum(axis=1)
    return float(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean())


def passages(number: int, num_words: int) -> list[str]:
    """Passages of a novel with ``num_words`` words each."""
    words = _file("english_novels/Dickens_Expectations_1861.txt").read_text(encoding="utf-8-sig").split()
    return [" ".join(words[start : start + num_words]) for start in range(0, number * num_words, num_words)]


def _scored(rows: list[tuple[str, str, float]]) -> Test:
    numbers: dict[str, int] = {}
    pairs = [(numbers.setdefault(a, len(numbers)), numbers.setdefault(b, len(numbers)), value) for a, b, value in rows]
    return Test(list(numbers), pairs)


def _part(rows: list, share: float) -> list:
    """Rows at equal distances, because the first rows of a data set may be shorter than the others."""
    number = min(len(rows), max(FEWEST, round(share * len(rows))))
    return [rows[index] for index in np.linspace(0, len(rows) - 1, number).round().astype(int)]


def _tabs(name: str) -> list[list[str]]:
    with open(_file(name), encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _file(name: str) -> Path:
    """A file of the shared data.

    Raises:
        RuntimeError: it is not on this machine.
    """
    if not (DATA / name).is_file():
        raise RuntimeError(f"no data at {name}")
    return DATA / name
