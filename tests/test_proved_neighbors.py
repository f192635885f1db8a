"""Exact nearest neighbors from int8 and float32 rows: ids and order equal exact arithmetic, for any rows."""

import numpy as np
import pytest

from bertkit.neighbors import RowMask, ScanName, bit_scan, encode_rows, nearest
from bertkit.neighbors.candidates import Candidates
from bertkit.neighbors.exact_scores import true_score
from bertkit.neighbors.int8_codes import encode_queries
from bertkit.neighbors.scans import same_rows


def by_exact_sums(query: np.ndarray, rows: np.ndarray, k: int, similarity: str) -> tuple[list[int], list[float]]:
    """Every row in float64; those within reach of the k-th by exact sums, ties by position."""
    q, x = query.astype(np.float64), rows.astype(np.float64)
    rough, reach = x @ q, 1e-9 * np.abs(x) @ np.abs(q)
    if similarity == "cosine":
        lengths = np.linalg.norm(x, axis=1)
        rough, reach = rough / lengths, reach / lengths
    k = min(k, len(rows))
    near = np.flatnonzero(rough + reach >= np.partition(rough - reach, -k)[-k]) if k else []
    scores = {row: true_score(query, rows[row], similarity) for row in near}
    order = sorted(scores, key=lambda row: (-scores[row], row))[:k]
    return [int(row) for row in order], [scores[row] for row in order]


def check(
    queries: np.ndarray,
    rows: np.ndarray,
    k: int,
    similarity: str,
    is_counted: np.ndarray | None = None,
    scan: ScanName = "int8",
) -> int:
    queries, rows = queries.astype(np.float32), rows.astype(np.float32)
    blocks = encode_rows(rows, similarity, scan)
    results = nearest(queries, rows, blocks, k, similarity, RowMask.of(len(rows), is_counted), scan)
    counted = np.arange(len(rows)) if is_counted is None else np.flatnonzero(is_counted)
    for query, result in zip(queries, results, strict=True):
        expected, scores = by_exact_sums(query, rows[counted], k, similarity)
        assert result.positions.tolist() == counted[expected].tolist()
        np.testing.assert_allclose(result.scores, scores, rtol=1e-12, atol=1e-300)
    return sum(result.num_scored_again for result in results)


def unit_rows(draw: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    rows = draw.standard_normal(shape)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


KINDS = {
    "normal": lambda draw, shape: draw.standard_normal(shape),
    "unit": unit_rows,
    "one huge dimension": lambda draw, shape: draw.standard_normal(shape) * np.where(np.arange(shape[1]) == 2, 1e6, 1),
    "few values": lambda draw, shape: draw.integers(-1, 2, shape) + (draw.random(shape) < 1e-3) + 0.0,
    "duplicates": lambda draw, shape: unit_rows(draw, shape)[draw.integers(0, 1 + shape[0] // 9, shape[0])],
    "near copies": lambda draw, shape: unit_rows(draw, (1, shape[1])) + 1e-7 * draw.standard_normal(shape),
    "all equal": lambda draw, shape: np.ones(shape) / 3,
    "subnormal": lambda draw, shape: draw.standard_normal(shape) * 1e-42,
    "tiny to huge rows": lambda draw, shape: (
        draw.standard_normal(shape) * 10.0 ** draw.integers(-37, 37, (shape[0], 1))
    ),
    "tiny to huge": lambda draw, shape: draw.standard_normal(shape) * 10.0 ** draw.integers(-40, 37, shape),
    "ascending": lambda draw, shape: np.abs(draw.standard_normal(shape[1])) * np.arange(1, shape[0] + 1)[:, None] / 999,
    "cancelling": lambda draw, shape: np.tile([1e8, -1e8, 1.0], shape[1])[: shape[1]] + draw.integers(0, 3, shape),
}


@pytest.mark.full(sample=1)
@pytest.mark.every_processor
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("scan", ["int8", "float32"])
def test_equals_exact_arithmetic(kind: str, similarity: str, scan: ScanName) -> None:
    for seed, (num_rows, dimensions, num_queries, k) in enumerate(
        [(1, 1, 1, 1), (17, 3, 2, 5), (1031, 21, 9, 10), (257, 50, 1, 300), (2003, 384, 6, 7), (1043, 19, 14, 9)]
    ):
        draw = np.random.default_rng([seed, len(kind)])
        rows = KINDS[kind](draw, (num_rows, dimensions)).astype(np.float32)
        if similarity == "cosine":
            rows[~rows.any(axis=1)] = 1
        else:
            rows[draw.random(num_rows) < 0.02] = 0
        queries = np.concatenate([rows[:1], KINDS[kind](draw, (num_queries, dimensions))])[:num_queries]
        queries = queries.astype(np.float32)
        queries[~queries.any(axis=1)] = 1
        check(queries, rows, k, similarity, scan=scan)


@pytest.mark.every_processor
def test_only_counted_rows_are_compared() -> None:
    draw = np.random.default_rng(1)
    rows, queries = unit_rows(draw, (3001, 33)), unit_rows(draw, (13, 33))
    for share in (0.0, 0.001, 0.1, 0.9):
        for scan in ("int8", "float32"):
            check(queries, rows, 10, "cosine", draw.random(3001) < share, scan)


@pytest.mark.full
def test_many_rows_on_many_threads() -> None:
    draw = np.random.default_rng(2)
    rows, queries = unit_rows(draw, (70_001, 48)), unit_rows(draw, (7, 48))
    scored_again = check(queries, rows, 10, "cosine")
    assert scored_again < 7 * 2000
    assert scored_again == check(queries, rows, 10, "cosine")  # the same work whenever it is done
    for one in range(3):
        check(queries[one : one + 1], rows, 1, "dot")
    assert check(queries, rows, 10, "cosine", scan="float32") < 7 * 15  # its bounds are narrow
    check(queries[:1], rows, 3, "dot", scan="float32")


@pytest.mark.slow
@pytest.mark.parametrize("scan", ["int8", "float32"])
def test_ten_thousand_queries_equal_exact_arithmetic(scan: ScanName) -> None:
    """Every kind of rows with queries of the same kind, of all others, and rows as queries."""
    num_queries, shares = 0, {}
    for number, kind in enumerate(KINDS):
        for similarity in ("cosine", "dot"):
            draw = np.random.default_rng([7, number])
            shape = 2003, int(draw.integers(20, 200))
            rows = KINDS[kind](draw, shape).astype(np.float32)
            rows[draw.random(len(rows)) < 0.01] = 1 if similarity == "cosine" else 0
            rows[~rows.any(axis=1)] = 1 if similarity == "cosine" else 0
            others = [each(draw, (20, shape[1])) for each in KINDS.values()]
            queries = np.concatenate([KINDS[kind](draw, (127, shape[1])), rows[:50], *others]).astype(np.float32)
            queries[~queries.any(axis=1)] = 1
            again = check(queries, rows, 10, similarity, scan=scan)
            num_queries += len(queries)
            shares[f"{kind}, {similarity}"] = again / len(queries) / len(rows)
    print(f"\n{scan}: {num_queries} queries; share of rows scored again: {np.median(list(shares.values())):.2%}")
    print(*(f"{share:8.2%}  {name}" for name, share in shares.items()), sep="\n")
    assert num_queries >= 10_000


def test_zero_query_returns_the_first_rows() -> None:
    draw = np.random.default_rng(3)
    rows = draw.standard_normal((70, 19))
    check(np.zeros((2, 19)), rows, 5, "dot")
    rows[:9] *= 1e35  # always compared in full precision
    for scan in ("int8", "float32"):
        for number in (1, 2, 5):
            check(np.zeros((number, 19)), rows, 5, "dot", scan=scan)


def test_bounds_hold_for_every_row() -> None:
    draw = np.random.default_rng(4)
    rows = (draw.standard_normal((64, 37)) * 10.0 ** draw.integers(-6, 6, (64, 1))).astype(np.float32)
    queries = draw.standard_normal((3, 37)).astype(np.float32)
    blocks, encoded = encode_rows(rows, "dot"), encode_queries(queries)
    codes = (
        blocks[:, :-192].reshape(4, -1, 16, 4).transpose(0, 2, 1, 3).reshape(64, -1)[:, :37].astype(np.float64) - 128
    )
    factors, errors, lengths = (
        blocks[:, -192:].copy().view(np.float32).reshape(4, 3, 16).transpose(1, 0, 2).reshape(3, 64)
    )
    assert (np.linalg.norm(rows - codes * factors[:, None], axis=1) <= errors).all()
    assert (np.linalg.norm(rows.astype(np.float64), axis=1) <= lengths).all()
    assert (np.abs(codes).max(axis=1) == 127).all()
    unit = queries / np.linalg.norm(queries.astype(np.float64), axis=1, keepdims=True)
    scale, length, error = encoded.numbers[:3, :3].T
    assert (np.abs(unit).max(axis=1) / 127 == pytest.approx(scale)) and (length <= 1.01).all() and (error < 0.02).all()


def test_room_for_candidates_grows() -> None:
    rows = np.linspace(0.1, 1, 5000, dtype=np.float32)[:, None] * np.ones((1, 20), np.float32)
    assert Candidates.empty(1, 3).positions.shape[1] < 5000
    check(np.ones((1, 20)), rows, 3, "cosine")  # every row ties but for its rounding
    check(np.ones((2, 20)), np.ones((5000, 20)), 3, "dot")
    check(np.ones((13, 20)), np.ones((5001, 20)), 3, "dot")  # two blocks at once
    check(np.ones((2, 20)), np.ones((5000, 20)), 3, "dot", scan="float32")


@pytest.mark.full
@pytest.mark.every_processor
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_one_bit_compares_the_best_by_sign(similarity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_scan, "SCORED_AGAIN_AT_LEAST", 60)
    draw = np.random.default_rng(5)
    for num_rows, dimensions, num_queries, k in [(1, 1, 1, 1), (50, 3, 2, 5), (1031, 37, 70, 2), (40_003, 64, 3, 7)]:
        rows = np.round(draw.standard_normal((num_rows, dimensions)), 1).astype(np.float32) + np.float32(0.01)
        queries = draw.standard_normal((num_queries, dimensions)).astype(np.float32)
        is_counted = draw.random(num_rows) < 0.8
        is_counted[0] = True
        mask = RowMask.of(num_rows, is_counted)
        results = nearest(queries, rows, encode_rows(rows, similarity, "1-bit"), k, similarity, mask, "1-bit")
        for query, result in zip(queries, results, strict=True):
            number = min(max(60, 20 * k), mask.num_rows)
            rounded = np.rint(query.astype(np.float64) / np.abs(query.astype(np.float64)).max() * 7)
            lengths, sums = np.linalg.norm(rows.astype(np.float64), axis=1), np.abs(rows.astype(np.float64)).sum(axis=1)
            factors = (lengths / sums * (lengths if similarity == "dot" else 1)).astype(np.float32)
            estimates = (np.sign(rows) @ rounded).astype(np.float32) * factors
            threshold = np.sort(estimates[is_counted])[-number]
            likely = np.flatnonzero(is_counted & (estimates >= threshold))
            expected, _ = by_exact_sums(query, rows[likely], k, similarity)
            assert result.positions.tolist() == likely[expected].tolist()
            assert result.num_scored_again == len(likely)
        assert nearest(queries, rows, encode_rows(rows, similarity, "1-bit"), k, similarity, scan="1-bit")[
            0
        ].scores.any()


@pytest.mark.parametrize("scan", ["int8", "float32", "1-bit"])
def test_blocks_are_compared_without_the_rows_beyond_the_last(scan: ScanName) -> None:
    rows = np.random.default_rng(6).standard_normal((41, 35)).astype(np.float32)
    blocks = encode_rows(rows, "dot", scan)
    assert same_rows(encode_rows(rows[:37], "dot", scan), blocks, 37)
    for changed in (5, 36):
        others = rows.copy()
        others[changed] *= -1.25
        assert not same_rows(encode_rows(others[:37], "dot", scan), blocks, 37)
