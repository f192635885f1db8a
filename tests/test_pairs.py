"""Most similar pairs, near duplicates and communities: equal to brute force and to sentence-transformers."""

from collections.abc import Iterator

import numpy as np
import pytest

from bertkit.errors import DataError, UsageError
from bertkit.neighbors import close_pairs, communities, duplicate_groups, top_pairs


@pytest.fixture(params=["int8", "float32"], autouse=True)
def proposer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small blocks, with both products that propose pairs."""
    is_exact = close_pairs.has_exact_int8()
    if request.param == "int8" and not is_exact:
        pytest.skip("torch does not multiply 8-bit numbers exactly on this processor")
    monkeypatch.setattr(close_pairs, "has_exact_int8", lambda: request.param == "int8")
    yield


def unit(rng: np.random.Generator, num_vectors: int, size: int) -> np.ndarray:
    vectors = rng.standard_normal((num_vectors, size)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    first, second = np.triu_indices(len(vectors), 1)
    wide = vectors.astype(np.float64)
    scores = (wide @ wide.T)[first, second]
    order = np.lexsort((second, first, -scores))[:k]
    return first[order], second[order], scores[order]


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("seed", range(20))
def test_top_pairs_equal_brute_force_with_ties(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small whole numbers: sums are exact and ties are many, at the edge of the k and across blocks."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(close_pairs, "BLOCK_ROWS", int(rng.integers(3, 40)))
    monkeypatch.setattr("bertkit.neighbors.pairs.BLOCK_ROWS", int(rng.integers(3, 40)))
    monkeypatch.setattr("bertkit.neighbors.pairs._PENDING", int(rng.integers(1, 99)))
    size, k = int(rng.integers(1, 21)), int(rng.integers(1, 300))
    vectors = rng.integers(-2, 3, (int(rng.integers(0, 90)), size)).astype(np.float32)
    pairs = top_pairs(vectors, k)
    for values, expected in zip(pairs, brute_force(vectors, k), strict=True):
        np.testing.assert_array_equal(values, expected)


def test_pairs_and_groups_of_single_numbers() -> None:
    numbers = np.random.default_rng(2).integers(-9, 10, (26, 1)).astype(np.float32)
    for values, expected in zip(top_pairs(numbers, 53), brute_force(numbers, 53), strict=True):
        np.testing.assert_array_equal(values, expected)
    (group,) = duplicate_groups(np.ones((20, 1), np.float32), 0.9)
    assert len(group) == 20


@pytest.mark.full(sample=2)
@pytest.mark.parametrize("kind", ["unit", "scaled", "one huge dimension", "subnormal", "near copies"])
def test_top_pairs_equal_brute_force_of_hard_vectors(kind: str) -> None:
    rng = np.random.default_rng(7)
    vectors = unit(rng, 1500, 37)
    if kind == "scaled":
        vectors *= np.exp(4 * rng.standard_normal((1500, 1))).astype(np.float32)
    elif kind == "one huge dimension":
        vectors[:, 5] *= 1e5
    elif kind == "subnormal":
        vectors *= np.float32(1e-39)
    elif kind == "near copies":
        vectors = vectors[:50][rng.integers(0, 50, 1500)] + 1e-6 * vectors
    vectors[[3, 77]] = 0
    pairs, (first, second, scores) = top_pairs(vectors, 2000), brute_force(vectors, 2000)
    np.testing.assert_allclose(pairs.scores, scores, rtol=1e-12, atol=1e-90)
    near_tie = np.append(np.abs(np.diff(scores)) <= 1e-12 * np.abs(scores[1:]), True)  # the order of sums differs
    same = (pairs.first == first) & (pairs.second == second)
    assert (same | near_tie | np.append(True, near_tie[:-1])).all()
    assert (pairs.first < pairs.second).all()


def test_cluster_of_near_copies_is_complete() -> None:
    rng = np.random.default_rng(3)
    vectors = unit(rng, 3000, 48)
    planted = np.sort(rng.choice(3000, 300, replace=False))
    vectors[planted] = vectors[planted[0]] + 0.01 * unit(rng, 300, 48)
    pairs = top_pairs(vectors, 60_000, min_score=0.9)
    expected = {(int(a), int(b)) for a in planted for b in planted if a < b}
    assert set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == expected
    (group,) = duplicate_groups(vectors, 0.9)
    np.testing.assert_array_equal(group, planted)


def test_groups_of_duplicates_are_connected_components() -> None:
    angles = np.array([0, 10, 20, 30, 90, 95, 180], np.float32) * np.pi / 180
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    groups = duplicate_groups(vectors[[4, 0, 6, 3, 1, 5, 2]], float(np.cos(11 * np.pi / 180)))
    assert [group.tolist() for group in groups] == [[1, 3, 4, 6], [0, 5]]


@pytest.mark.full(sample=2)
@pytest.mark.parametrize("threshold, min_size", [(0.75, 3), (0.6, 2), (0.5, 10), (0.9, 1)])
def test_communities_equal_those_of_sentence_transformers(threshold: float, min_size: int) -> None:
    util = pytest.importorskip("sentence_transformers.util", reason="sentence-transformers is not installed")
    rng = np.random.default_rng(11)
    centers = unit(rng, 40, 24)
    vectors = centers[rng.zipf(1.6, 1700) % 40] + 0.6 * unit(rng, 1700, 24)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    expected = util.community_detection(vectors, threshold=threshold, min_community_size=min_size)
    groups = communities(vectors, threshold, min_size)
    assert len(groups) > 3
    assert [group.tolist() for group in groups] == [[int(row) for row in group] for group in expected]


@pytest.mark.full
def test_pairs_of_mapped_halves_and_of_few_vectors(tmp_path) -> None:
    vectors = unit(np.random.default_rng(1), 130, 9)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    np.testing.assert_array_equal(top_pairs(mapped, 5), top_pairs(vectors, 5))
    halves = top_pairs(vectors.astype(np.float16), 5)
    np.testing.assert_array_equal(halves, top_pairs(vectors.astype(np.float16).astype(np.float32), 5))
    for few in (0, 1):
        assert len(top_pairs(vectors[:few], 5).first) == 0
        assert duplicate_groups(vectors[:few]) == [] and communities(vectors[:few]) == []


def test_pairs_refuse_what_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match=r"expected \(num_vectors, embedding_dim\), got shape \(3,\)"):
        top_pairs(np.zeros(3))
    for k in (0, "5", 2.5, True):
        with pytest.raises(UsageError, match=f"k={k!r}: expected an int of at least 1"):
            top_pairs(np.zeros((5, 3)), k)  # pyrefly: ignore
    with pytest.raises(UsageError, match="min_score=nan"):
        top_pairs(np.zeros((5, 3)), min_score=float("nan"))
    with pytest.raises(UsageError, match="min_score='high', expected a number"):
        top_pairs(np.zeros((5, 3)), min_score="high")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="min_size=0"):
        communities(np.zeros((5, 3)), min_size=0)
    for bad in (np.nan, np.inf, 1e30):
        vectors = np.ones((5, 3), np.float32)
        vectors[3, 1] = bad
        with pytest.raises(DataError, match="vector 3 has a component that is not finite"):
            duplicate_groups(vectors)
