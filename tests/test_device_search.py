"""Search on a GPU: equal to the CPU, with few copies.

The CPU and the meta device, which has shapes and no numbers, stand for a GPU.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import our_model
from test_device_copies import Copies
from test_proved_neighbors import KINDS, by_exact_sums, unit_rows

from bertkit import Document, Index, TextSet, device
from bertkit.errors import DataError, UsageError
from bertkit.evidence.collections import Collection
from bertkit.evidence.retrieval import retrieve
from bertkit.mining import MiningOptions, mine_negatives
from bertkit.neighbors import (
    SCANS,
    Corpus,
    DeviceScan,
    Nearest,
    RowMask,
    device_rows,
    device_scan,
    device_top_k,
    encode_rows,
    nearest,
    top_k,
)
from bertkit.neighbors.device_rows import DeviceRows
from bertkit.search import Equal
from bertkit.search.store import vector_store

CPU, META = torch.device("cpu"), torch.device("meta")


class OnDevice(Corpus):
    """A corpus that is on a device in any case."""

    def __init__(self, embeddings: np.ndarray, device: torch.device) -> None:
        super().__init__(embeddings, META)
        self._rows = DeviceRows(CPU)


@pytest.fixture(autouse=True)
def copied_at_once(monkeypatch) -> None:
    monkeypatch.setattr(device_scan, "QUERIES_BEFORE_COPY", 0)


@pytest.fixture(params=["kept", "sent"])
def small_parts(request, monkeypatch) -> str:
    """Parts of some rows and queries; rows that are kept on the device, or sent for each search."""
    monkeypatch.setattr(device_rows, "VALUES_AT_ONCE", 1009)
    monkeypatch.setattr(device_rows, "QUERIES_AT_ONCE", 7)
    monkeypatch.setattr(device_rows, "BYTES_SENT", 2048)
    if request.param == "sent":
        monkeypatch.setattr(device_rows, "free_bytes", lambda device: 0)
    return request.param


def check(queries: np.ndarray, corpus: np.ndarray, k: int) -> None:
    """Ids are equal, but for scores that differ by rounding alone."""
    scores, ids = OnDevice(corpus, CPU).top_k(queries, k)
    expected_scores, expected_ids = top_k(queries, corpus, k)
    assert scores.dtype == expected_scores.dtype and ids.dtype == np.int64
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
    exact = queries.astype(np.float64) @ corpus.astype(np.float64).T
    np.testing.assert_allclose(np.take_along_axis(exact, ids, 1), scores, rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == len(row) for row in ids.tolist())
    is_without_rounding = (exact == np.rint(exact)).all()
    assert np.count_nonzero(ids != expected_ids) <= (0 if is_without_rounding else 0.01 * ids.size)


def last_of_ties(topk, values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    best, columns = topk(values.flip(1), k)
    return best, values.shape[1] - 1 - columns


def sentences(number: int) -> list[str]:
    words = "the cat a dog and ran off sat mat one two three red blue un able".split()
    draw = np.random.default_rng(number)
    return [f"{' '.join(draw.choice(words, int(draw.integers(2, 9))))} {index}" for index in range(number)]


# ---- top-k


@pytest.mark.full(sample=3)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("num_queries", [1, 23])
def test_top_k_equals_the_cpu(num_queries: int, dtype: str, small_parts: str) -> None:
    draw = np.random.default_rng(num_queries)
    queries = draw.standard_normal((num_queries, 37)).astype(np.float32)
    corpus = draw.standard_normal((513, 37)).astype(dtype)
    for k in (1, 10, 449, 513, 600):
        check(queries, corpus, k)


@pytest.mark.parametrize("seed", range(20))
def test_ties_are_in_order_of_ids_across_parts(seed: int, small_parts: str, monkeypatch) -> None:
    """Small integers: sums are exact, with many ties, at rank k and across parts; with and without room for them, and
    for a topk that prefers the last of them."""
    topk = torch.Tensor.topk
    if seed % 2:
        monkeypatch.setattr(torch.Tensor, "topk", lambda values, k: last_of_ties(topk, values, k))
    draw = np.random.default_rng(seed)
    monkeypatch.setattr(device_top_k, "SPARE", int(draw.integers(0, 9)))
    monkeypatch.setattr(device_rows, "VALUES_AT_ONCE", int(draw.integers(1, 99)))
    num_queries, num_corpus, k = (int(draw.integers(low, high)) for low, high in ((0, 11), (0, 61), (1, 70)))
    queries = draw.integers(-1, 2, (num_queries, 3)).astype(np.float64 if seed % 3 == 0 else np.float32)
    check(queries, draw.integers(-1, 2, (num_corpus, 3)).astype(draw.choice(["float16", "float32"])), k)


def test_memory_mapped_corpus_is_read_in_parts(small_parts: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    np.save(tmp_path / "corpus.npy", draw.standard_normal((301, 19)).astype(np.float16))
    corpus = np.load(tmp_path / "corpus.npy", mmap_mode="r")
    check(draw.standard_normal((5, 19)).astype(np.float32), corpus, 10)


def test_top_k_refuses_what_the_cpu_refuses(small_parts: str) -> None:
    corpus = np.ones((300, 3), np.float32)
    for k in (0, "5", 2.5, True):
        with pytest.raises(UsageError, match=f"k={k!r}: expected an int of at least 1"):
            OnDevice(corpus, CPU).top_k(np.ones((1, 3)), k)  # pyrefly: ignore
    with pytest.raises(UsageError, match="4 dimensions, the corpus 3"):
        Corpus(corpus, META).top_k(np.ones((1, 4)), 1)
    corpus[299, 0], queries = np.inf, np.ones((9, 3), np.float32)
    queries[8, 0] = 0
    with pytest.raises(DataError, match="a score of query 8 is not a number"):
        OnDevice(corpus, CPU).top_k(queries, 1)


def test_devices_compute_what_they_can(monkeypatch) -> None:
    computed = []
    monkeypatch.setattr(device_top_k, "device_top_k", lambda *given: computed.append(given))
    vectors = {dtype: np.ones((2, 3), dtype) for dtype in (np.float32, np.float64)}
    for name, dtype, number in (("cpu", np.float32, 0), ("mps", np.float64, 0), ("mps", np.float32, 1),
                                ("cuda", np.float32, 2), ("cuda", np.float64, 3)):  # fmt: skip
        Corpus(vectors[dtype], torch.device(name)).top_k(vectors[np.float32], 1)
        assert len(computed) == number, (name, dtype)


def test_products_are_in_full_float32_whatever_torch_is_set_to() -> None:
    draw = np.random.default_rng(4)
    queries, corpus = unit_rows(draw, (64, 256)).astype(np.float32), unit_rows(draw, (700, 256)).astype(np.float32)
    expected, before = top_k(queries, corpus, 5)[0], torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with device.full_float32():
            assert torch.backends.cuda.matmul.fp32_precision == torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        np.testing.assert_allclose(OnDevice(corpus, CPU).top_k(queries, 5)[0], expected, atol=2e-6)
        assert torch.get_float32_matmul_precision() == "medium" and torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)


# ---- copies


@pytest.fixture
def received(monkeypatch) -> list[tuple[int, ...]]:
    """Shapes of the results that were waited for; they arrive as zeros."""
    shapes: list[tuple[int, ...]] = []

    def receive(tensor: torch.Tensor):
        return lambda: (shapes.append(tuple(tensor.shape)), torch.zeros(tensor.shape, dtype=tensor.dtype))[1]

    for module in (device_top_k, device_scan):
        monkeypatch.setattr(module, "receive", receive)
    return shapes


def test_nothing_is_read_before_the_results(small_parts: str, received: list) -> None:
    corpus, queries = np.ones((300, 16), np.float32), np.ones((20, 16), np.float32)
    searched = Corpus(corpus, META)
    with Copies() as copies:
        searched.top_k(queries, 3)
    assert received == [(7, 135), (7, 135), (6, 135)]  # of 67 candidates scores and ids; whether a score is NaN
    parts = 10 if small_parts == "kept" else 3 * 10
    assert copies.counts == {("cpu", "meta"): parts + 3}
    with Copies() as copies:
        searched.top_k(queries[:4], 3)
    assert copies.counts == {("cpu", "meta"): (0 if small_parts == "kept" else 10) + 1}


def test_rows_of_a_store_are_copied_once(received: list, monkeypatch) -> None:
    monkeypatch.setattr(device_rows, "BYTES_SENT", 2048)
    rows, queries = np.ones((300, 16), np.float32), np.ones((20, 16), np.float32)
    scan = DeviceScan(META)
    for number, parts in ((200, 7), (300, 4), (200, 0), (300, 0)):
        with Copies() as copies:
            scan.nearest(queries, rows[:number], 3, "cosine", RowMask.of(number))
        assert copies.counts == {("cpu", "meta"): parts + 2}  # and the mask and the queries
    assert received == [(20, 210)] * 4


# ---- the scan of a store


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("kind", KINDS)
def test_scan_equals_exact_arithmetic(kind: str, similarity: str, monkeypatch) -> None:
    monkeypatch.setattr(device_rows, "VALUES_AT_ONCE", 9973)
    num_left = 0
    for seed, (num_rows, dimensions, num_queries, k) in enumerate(
        [(1, 1, 1, 1), (17, 3, 2, 5), (1031, 21, 9, 10), (257, 50, 1, 300), (2003, 384, 6, 7)]
    ):
        draw = np.random.default_rng([seed, len(kind)])
        rows = KINDS[kind](draw, (num_rows, dimensions)).astype(np.float32)
        rows[~rows.any(axis=1)] = 1
        queries = np.concatenate([rows[:1], KINDS[kind](draw, (num_queries, dimensions))])[:num_queries]
        queries = queries.astype(np.float32)
        queries[~queries.any(axis=1)] = 1
        is_counted = draw.random(num_rows) < 0.8
        mask, counted = RowMask.of(num_rows, is_counted), np.flatnonzero(is_counted)
        scan = DeviceScan(CPU)
        num_left += sum(result is None for result in scan.nearest(queries, rows, k, similarity, mask))
        blocks = encode_rows(rows, similarity)
        for query, result in zip(
            queries, nearest(queries, rows, blocks, k, similarity, mask, "int8", scan), strict=True
        ):
            expected, scores = by_exact_sums(query, rows[counted], k, similarity)
            assert result.positions.tolist() == counted[expected].tolist()
            np.testing.assert_allclose(result.scores, scores, rtol=1e-12, atol=1e-300)
    assert num_left == 0 or kind not in ("normal", "unit")


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("scan", SCANS)
def test_queries_without_proof_are_scanned_by_the_cpu(scan: str) -> None:
    rows = np.ones((3000, 20), np.float32)
    rows[::7] = unit_rows(np.random.default_rng(1), (429, 20))
    queries, mask, blocks = rows[:2], RowMask.of(3000), encode_rows(rows, "cosine", scan)
    results = DeviceScan(CPU).nearest(queries, rows, 4, "cosine", mask)
    assert results[1] is None and isinstance(results[0], Nearest)
    mine = nearest(queries, rows, blocks, 4, "cosine", mask, scan, DeviceScan(CPU))
    assert mine[0].positions[0] == 0 and mine[1].positions.tolist() == [1, 2, 3, 4]


def test_first_queries_are_scanned_by_the_cpu(monkeypatch) -> None:
    monkeypatch.setattr(device_scan, "QUERIES_BEFORE_COPY", 5)
    rows = unit_rows(np.random.default_rng(2), (100, 20)).astype(np.float32)
    scan, mask = DeviceScan(CPU), RowMask.of(100)
    assert scan.nearest(rows[:4], rows, 2, "cosine", mask) == [None] * 4
    assert None not in scan.nearest(rows[:1], rows, 2, "cosine", mask)


def test_rows_that_do_not_fit_are_scanned_by_the_cpu(monkeypatch) -> None:
    rows = unit_rows(np.random.default_rng(2), (100, 20)).astype(np.float32)
    scan, mask, memory = DeviceScan(CPU), RowMask.of(100), [3 * 80 * 80]
    monkeypatch.setattr(device_rows, "free_bytes", lambda device: memory[0])
    assert None not in scan.nearest(rows[:3], rows[:80], 2, "cosine", RowMask.of(80))
    memory[0] = 0
    assert scan.nearest(rows[:3], rows, 2, "cosine", mask) == [None] * 3
    assert [one.positions[0] for one in nearest(rows[:3], rows, encode_rows(rows, "cosine"), 1, "cosine", mask,
                                                device_scan=scan)] == [0, 1, 2]  # fmt: skip
    memory[0] = 3 * 80 * 100
    assert None not in scan.nearest(rows[:3], rows, 2, "cosine", mask)


# ---- where it is used


@pytest.mark.full
@pytest.mark.cpu_only
def test_index_on_a_device_equals_one_on_the_cpu(encoder: Path, tmp_path: Path, monkeypatch) -> None:
    texts, searched = sentences(150), []

    class Recorded(DeviceScan):
        def __init__(self, device: torch.device) -> None:
            assert device == META
            super().__init__(CPU)

        def nearest(self, queries: np.ndarray, rows: np.ndarray, *rest) -> list[Nearest | None]:
            searched.append((self, len(rows)))
            results = super().nearest(queries, rows, *rest)
            assert None not in results
            return results

    monkeypatch.setattr("bertkit.neighbors.DeviceScan", Recorded)
    documents = [Document(str(number), text, metadata={"third": number % 3}) for number, text in enumerate(texts)]
    with Index.open(tmp_path / "index", encoder) as index, monkeypatch.context() as patch:
        patch.setattr(vector_store, "resolve_device", lambda name: META)
        patch.setattr(vector_store, "is_cpu", lambda name: False)
        with Index.open(tmp_path / "index") as ours:

            def check() -> None:
                for query in texts[::30]:
                    for mode, where in (("dense", None), ("hybrid", None), ("dense", Equal("third", 1))):
                        expected, given = (one.search(query, 7, mode=mode, where=where) for one in (index, ours))
                        assert [(one.id, one.score) for one in given] == [(one.id, one.score) for one in expected]

            index.add(documents[:100])
            check()
            index.add(documents[100:])
            check()
            index.add([Document("7", "the cat sat"), Document("8", texts[9])])
            index.store.delete([record.id for record in index.store.records() if record.document_id == "30"])
            check()
            assert len({scan for scan, _ in searched}) == 1  # which copied only what was added
            assert sorted({number for _, number in searched}) == [100, 150, 152]
            index.store.compact()
            check()
            assert len({scan for scan, _ in searched}) == 2 and searched[-1][1] == 149
            assert len(searched) == 4 * 15


def test_unknown_device_of_a_store_is_refused(tmp_path: Path, encoder: Path) -> None:
    with Index.open(tmp_path / "index", encoder) as index:
        identity = index.store.identity
    with pytest.raises(UsageError, match="expected auto, cpu, cuda or mps"):
        vector_store.VectorStore.create(tmp_path / "store", identity, device="meta")
    assert not (tmp_path / "store").exists()
    with pytest.raises(UsageError, match="expected auto, cpu, cuda or mps"):
        vector_store.VectorStore.open(tmp_path / "index", device="meta")


def test_mining_and_retrieval_search_on_the_device(monkeypatch) -> None:
    """Vectors of small integers: sums are exact, so ids are equal, ties included."""
    model, texts = our_model("encoder", 6), sentences(80)
    embed = model.embed
    monkeypatch.setattr(model, "embed", lambda *given, **options: np.rint(8 * embed(*given, **options)))
    rows = [TextSet(texts[number], (texts[40 + number],)) for number in range(30)]
    numbered = {str(number): text for number, text in enumerate(texts)}
    collection = Collection(numbered, numbered, {str(number): {"1": 1} for number in range(9)})

    def results() -> tuple[list[TextSet], list[list[str]]]:
        rankings = retrieve(model, collection, 20)
        return list(mine_negatives(model, rows, MiningOptions(), corpus=texts)), [
            list(one) for one in rankings.values()
        ]

    expected = results()
    for module in ("neighbors", "evidence.retrieval"):
        monkeypatch.setattr(f"bertkit.{module}.Corpus", OnDevice)
    assert results() == expected
