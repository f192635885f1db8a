"""Speed of exact search for the ten nearest of a million vectors.

    python benchmarks/search.py arrays [--num-rows 1000000] [--rows FILE.npy] [--systems bertkit numpy ...]
    python benchmarks/search.py store [--num-rows 1000000]
    python benchmarks/search.py files --folder FOLDER [--num-rows 10000000]

``arrays`` compares with the exact searches of numpy, faiss, usearch and numkong on the same rows, one query at a time
and 1,000 at once; every time includes the selection of the ten. Systems measured by an earlier run on the same day stay
in the results. ``store`` times the store of a folder: adding, opening, the first search, one search, and sixteen
searches from sixteen threads. The rows of both are those of a file of embeddings, or random points around 2,000
centers. ``files`` times one query over files that are mapped into memory; missing files are written to the folder, 20
GB for ten million rows.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import report
from turns import say

K, DIMENSIONS, NUM_QUERIES = 10, 384, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("arrays", "store", "files"))
    parser.add_argument("--folder", type=Path, default=report.CACHE / "search-files")
    parser.add_argument("--num-rows", type=int, default=1_000_000)
    parser.add_argument("--rows", type=Path, help="(n, dimensions) float32 embeddings, a npy file")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    part = parser.parse_known_args()[0].part
    results, options = report.begin(f"search-{part}", parser)
    if part == "files":
        results |= {"num_rows": options.num_rows, "dimensions": DIMENSIONS, "rows": "random unit vectors", "k": K}
        results |= _files(options.folder, options.num_rows)
        report.finish(results, _described(results), options.out)
        return
    rows, queries, source = _vectors(options.rows, options.num_rows)
    results |= {"num_rows": len(rows), "dimensions": rows.shape[1], "rows": source, "k": K, "skipped": {}}
    if part == "store":
        results |= _store(rows, queries)
    else:
        results["systems"] = report.earlier_systems(results, options.out, "num_rows", "rows")
        results["systems"] |= _arrays(rows, queries, options, results["skipped"])
    report.finish(results, _described(results), options.out)


def _vectors(file: Path | None, number: int) -> tuple[np.ndarray, np.ndarray, str]:
    draw = np.random.default_rng(0)
    if file is not None:
        rows = np.load(file)[: number + NUM_QUERIES]
        rows, queries = rows[:-NUM_QUERIES], rows[-NUM_QUERIES:]
        return np.ascontiguousarray(rows), np.ascontiguousarray(queries), "embeddings"
    centers = draw.standard_normal((2000, DIMENSIONS), dtype=np.float32)

    def around(count: int) -> np.ndarray:
        points = draw.standard_normal((count, DIMENSIONS), dtype=np.float32)
        points += 1.2 * centers[draw.integers(0, len(centers), count)]
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    return around(number), around(NUM_QUERIES), "unit vectors around 2,000 random centers"


def _arrays(rows: np.ndarray, queries: np.ndarray, options: argparse.Namespace, skipped: dict[str, str]) -> dict:
    systems: dict[str, Callable[[np.ndarray], list]] = {}
    for name in options.systems:
        try:
            systems[name] = SYSTEMS[name](rows)
        except ImportError as error:
            skipped[name] = str(error)
    exact = _in_float64(rows, queries[:50])
    one: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(5 * options.rounds + 1):
        for name, search in systems.items():
            one[name].append(_seconds(search, queries[number : number + 1]))
    measured = {}
    for name, search in systems.items():
        pairs = list(zip(search(queries[:50]), exact, strict=True))
        many = _seconds(search, queries)
        measured[name] = {
            "one_query_ms": 1e3 * float(np.median(one[name][1:])),
            "thousand_queries_s": many,
            "recall_at_10": float(np.mean([len(set(found) & set(best)) / K for found, best in pairs])),
            "same_ids_in_the_same_order_as_float64": all(list(found) == list(best) for found, best in pairs),
        }
        say(f"{name}: {json.dumps(measured[name])}")
    return measured


def _bertkit(scan: Literal["int8", "float32", "1-bit"]) -> Callable[[np.ndarray], Callable[[np.ndarray], list]]:
    def make(rows: np.ndarray) -> Callable[[np.ndarray], list]:
        from bertkit.neighbors import RowMask, encode_rows, nearest

        blocks, mask = encode_rows(rows, "cosine", scan), RowMask.of(len(rows))
        return lambda queries: [each.positions for each in nearest(queries, rows, blocks, K, "cosine", mask, scan)]

    return make


def _numpy(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def search(queries: np.ndarray) -> np.ndarray:
        best = []
        for start in range(0, len(queries), 50):
            scores = queries[start : start + 50] @ rows.T if len(queries) > 1 else (rows @ queries[0])[None]
            ids = np.argpartition(scores, -K, axis=1)[:, -K:]
            best.append(np.take_along_axis(ids, np.argsort(-np.take_along_axis(scores, ids, 1), axis=1), 1))
        return np.concatenate(best)

    return search


def _faiss(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    import faiss

    faiss.omp_set_num_threads(2)
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return lambda queries: index.search(queries, K)[1]


def _usearch_float(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from usearch.index import MetricKind, search

    return lambda queries: np.atleast_2d(
        search(rows, queries, K, MetricKind.IP, exact=True, threads=2).keys.astype(np.int64)
    )


def _usearch_int8(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from usearch.index import MetricKind, search

    codes = np.rint(rows * 127).astype(np.int8)
    return lambda queries: np.atleast_2d(
        search(codes, np.rint(queries * 127).astype(np.int8), K, MetricKind.Cos, exact=True, threads=2).keys.astype(
            np.int64
        )
    )


def _numkong(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    import numkong

    codes = np.rint(rows * 127).astype(np.int8)
    packed = numkong.dots_pack(codes, dtype="int8")

    def part(queries: np.ndarray) -> np.ndarray:
        scores = np.asarray(numkong.dots_packed(np.rint(queries * 127).astype(np.int8), packed))
        return np.argpartition(scores, -K, axis=1)[:, -K:]

    threads = ThreadPoolExecutor(2)  # numkong itself computes on one
    return lambda queries: np.concatenate(
        list(threads.map(part, [queries[start : start + 25] for start in range(0, len(queries), 25)]))
    )


SYSTEMS: dict[str, Callable[[np.ndarray], Callable[[np.ndarray], Any]]] = {
    "bertkit": _bertkit("int8"),
    "bertkit, scan float32": _bertkit("float32"),
    "numpy": _numpy,
    "faiss": _faiss,
    "usearch float": _usearch_float,
    "usearch int8": _usearch_int8,
    "numkong": _numkong,
}


def _in_float64(rows: np.ndarray, queries: np.ndarray) -> list[np.ndarray]:
    best = []
    for query, rough in zip(queries, queries @ rows.T, strict=True):
        near = np.sort(np.argpartition(rough, -200)[-200:])
        exact = rows[near].astype(np.float64)
        scores = exact @ query.astype(np.float64) / np.linalg.norm(exact, axis=1)
        best.append(near[np.argsort(-scores, kind="stable")[:K]])
    return best


def _store(rows: np.ndarray, queries: np.ndarray) -> dict:
    from bertkit.search import Identity, Record, VectorStore

    identity = Identity("none", rows.shape[1])
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        with VectorStore.create(Path(folder) / "store", identity) as store:
            records = (Record(f"r{index}", f"text {index}", row) for index, row in enumerate(rows))
            figures["add_s"] = _seconds(store.add, records)
        start = time.perf_counter()
        with VectorStore.open(Path(folder) / "store") as store:
            figures["open_s"] = time.perf_counter() - start
            figures["first_search_s"] = _seconds(store.search, queries[0], identity, K)
            times = [_seconds(store.search, query, identity, K) for query in queries[:20]]
            figures["one_search_s"] = float(np.median(times))
            together = []
            for _ in range(20):
                threads = [threading.Thread(target=store.search, args=(query, identity, K)) for query in queries[:16]]
                together.append(_seconds(_run, threads))
            figures["sixteen_searches_s"] = float(np.median(together))
        files = (Path(folder) / "store").iterdir()
        figures["bytes"] = {file.name: file.stat().st_size for file in files}
    return {"figures": figures}


def _files(folder: Path, number: int) -> dict:
    from bertkit.neighbors import RowMask, encode_rows, nearest
    from bertkit.search.store.row_files import RowFile

    folder.mkdir(parents=True, exist_ok=True)
    block_bytes = encode_rows(np.ones((1, DIMENSIONS), np.float32), "cosine").shape[1]
    vectors = RowFile(folder / f"vectors.{number}.float32", DIMENSIONS, "<f4")
    blocks = RowFile(folder / f"blocks.{number}.int8", block_bytes, "u1")
    draw = np.random.default_rng(0)
    if not vectors.path.exists():
        for start in range(0, number, 160_000):
            rows = draw.standard_normal((min(160_000, number - start), DIMENSIONS), dtype=np.float32)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            vectors.write(start, rows)
            blocks.write(start // 16, encode_rows(rows, "cosine"))
        vectors.sync()
        blocks.sync()
    rows, codes, mask = vectors.rows(number, at_random=True), blocks.rows(-(-number // 16)), RowMask.of(number)
    queries = np.random.default_rng(1).standard_normal((25, DIMENSIONS), dtype=np.float32)
    seconds, again = [], []
    for query in queries:  # the first reads the files from disk
        started = time.perf_counter()
        (found,) = nearest(query[None], rows, codes, K, "cosine", mask)
        seconds.append(time.perf_counter() - started)
        again.append(found.num_scored_again)
    return {
        "figures": {
            "first_query_s": seconds[0],
            "one_query_s": float(np.median(seconds[5:])),
            "rows_scored_again_per_query": float(np.mean(again)),
            "bytes": {file.path.name: file.path.stat().st_size for file in (vectors, blocks)},
        }
    }


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def _described(results: dict) -> str:
    lines = [
        f"# Exact search, {results['num_rows']:,} x {results['dimensions']}, top {results['k']}: {results['rows']}",
        "",
    ]
    if "figures" in results:
        return "\n".join([*lines, "```", json.dumps(results["figures"], indent=2), "```"])
    lines += [
        "| system | one query, ms | 1,000 queries, s | recall@10 | ids and order of float64 |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {one['one_query_ms']:.1f} | {one['thousand_queries_s']:.2f} | {one['recall_at_10']:.3f} | "
        f"{'yes' if one['same_ids_in_the_same_order_as_float64'] else 'no'} |"
        for name in SYSTEMS
        if (one := results["systems"].get(name)) is not None
    ]
    lines += ["", *report.skipped_lines(results)]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
