"""Vector stores on one machine through their public interfaces: time to add and to search, recall, disk space.

    python benchmarks/search_stores.py [--num-rows 100000] [--systems bertkit sqlite-vec ...] [--out benchmarks/results]
    python benchmarks/search_stores.py --systems "Qdrant, local" --folder FOLDER [--only-add]

Every store holds an id, a text and a vector for each row, is closed, and is opened again for the searches, one at a
time. Systems measured by an earlier run on the same day stay in the results, so each can have a separate run. With
``--folder`` the stores are kept, and a later run searches them without adding again: so the searches of a store that
takes an hour to fill can be timed on an idle machine.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import report
from sentence_vectors import SOURCE, sentence_vectors
from turns import say

K, NUM_QUERIES, ADDED_AT_ONCE = 10, 200, 5000

Search = Callable[[np.ndarray], list[int]]
"""A function from a query to the nearest rows, best first, which reads their ids and texts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-rows", type=int, default=100_000)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--folder", type=Path, help="folder where the stores stay")
    parser.add_argument("--only-add", action="store_true", help="fill the stores, and do not search them")
    results, options = report.begin("search-stores", parser)
    if options.only_add and options.folder is None:
        parser.error("--only-add needs --folder")
    vectors = sentence_vectors(options.num_rows + NUM_QUERIES)
    rows, queries = vectors[:-NUM_QUERIES], vectors[-NUM_QUERIES:]
    exact = [set(np.argsort(-(rows @ query), kind="stable")[:K].tolist()) for query in queries]
    results |= {"num_rows": len(rows), "dimensions": rows.shape[1], "rows": SOURCE, "k": K, "skipped": {}}
    results["systems"] = report.earlier_systems(results, options.out, "num_rows", "rows")
    for name in options.systems:
        folder = options.folder / name.replace(", ", "-") if options.folder else Path(tempfile.mkdtemp())
        try:
            added = _added(SYSTEMS[name][0], folder, rows)
            if options.only_add:
                say(f"{name}: {json.dumps(added)}")
                continue
            results["systems"][name] = added | _searched(SYSTEMS[name][1], folder / "rows", queries, exact)
        except ImportError as error:
            results["skipped"][name] = str(error)
            continue
        finally:
            if options.folder is None:
                shutil.rmtree(folder, ignore_errors=True)
        say(f"{name}: {json.dumps(results['systems'][name])}")
        report.write(results, _described(results), options.out)
    report.finish(results, _described(results), options.out)


def _added(add: Callable[[Path, np.ndarray], None], folder: Path, rows: np.ndarray) -> dict:
    """Fill a store, unless an earlier run has: seconds, and bytes on disk."""
    figures = folder / "added.json"
    if not figures.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "rows").mkdir(parents=True)
        started = time.perf_counter()
        add(folder / "rows", rows)
        seconds = time.perf_counter() - started
        files = [file for file in (folder / "rows").rglob("*") if file.is_file()]
        figures.write_text(json.dumps({"add_s": seconds, "bytes": sum(file.stat().st_size for file in files)}))
    return json.loads(figures.read_text())


def _searched(opened: Callable, folder: Path, queries: np.ndarray, exact: list[set[int]]) -> dict:
    started = time.perf_counter()
    with opened(folder) as search:
        search(queries[0])
        first = time.perf_counter() - started
        times, found = [], []
        for query in queries:
            started = time.perf_counter()
            found.append(search(query))
            times.append(time.perf_counter() - started)
    return {
        "first_search_s": first,
        "search_ms": 1e3 * float(np.median(times)),
        "recall_at_10": float(np.mean([len(best & set(one)) / K for best, one in zip(exact, found, strict=True)])),
    }


def _parts(rows: np.ndarray) -> Iterator[tuple[range, np.ndarray]]:
    for start in range(0, len(rows), ADDED_AT_ONCE):
        part = rows[start : start + ADDED_AT_ONCE]
        yield range(start, start + len(part)), part


def _text(number: int) -> str:
    return f"The text of row {number}."


def _bertkit(scan: str) -> tuple[Callable, Callable]:
    from bertkit.search import Identity, Record, VectorStore

    def add(folder: Path, rows: np.ndarray) -> None:
        with VectorStore.create(folder / "store", Identity("none", rows.shape[1]), scan=scan) as store:
            for numbers, part in _parts(rows):
                store.add(Record(str(n), _text(n), row) for n, row in zip(numbers, part, strict=True))

    @contextmanager
    def opened(folder: Path) -> Iterator[Search]:
        with VectorStore.open(folder / "store") as store:
            identity = store.identity
            yield lambda query: [int(hit.id) for hit in store.search(query, identity, K)]

    return add, opened


def _sqlite_vec() -> tuple[Callable, Callable]:

    def connected(folder: Path) -> Any:
        import apsw  # Python's own sqlite3 is often built without extensions
        import sqlite_vec

        connection = apsw.Connection(str(folder / "store.sqlite3"))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        return connection

    def add(folder: Path, rows: np.ndarray) -> None:
        connection = connected(folder)
        connection.execute("CREATE TABLE record (number INTEGER PRIMARY KEY, text TEXT)")
        connection.execute(
            f"CREATE VIRTUAL TABLE vector USING vec0(embedding float[{rows.shape[1]}] distance_metric=cosine)"
        )
        for numbers, part in _parts(rows):
            pairs = [(n, row.tobytes()) for n, row in zip(numbers, part, strict=True)]
            with connection:
                connection.executemany("INSERT INTO record VALUES (?, ?)", [(n, _text(n)) for n in numbers])
                connection.executemany("INSERT INTO vector (rowid, embedding) VALUES (?, ?)", pairs)
        connection.close()

    @contextmanager
    def opened(folder: Path) -> Iterator[Search]:
        connection = connected(folder)
        statement = (
            "SELECT number, text, distance FROM (SELECT rowid, distance FROM vector WHERE embedding MATCH ? AND k = ?) "
            "JOIN record ON number = rowid ORDER BY distance"
        )
        yield lambda query: [number for number, _, _ in connection.execute(statement, [query.tobytes(), K])]
        connection.close()

    return add, opened


def _lancedb(with_index: bool) -> tuple[Callable, Callable]:
    def add(folder: Path, rows: np.ndarray) -> None:
        import lancedb

        table = None
        for numbers, part in _parts(rows):
            data = [{"number": n, "text": _text(n), "vector": row} for n, row in zip(numbers, part, strict=True)]
            if table is None:
                table = lancedb.connect(folder).create_table("rows", data)
            else:
                table.add(data)
        if with_index and table is not None:
            table.create_index("vector", config=lancedb.index.IvfPq(distance_type="cosine"))

    @contextmanager
    def opened(folder: Path) -> Iterator[Search]:
        import lancedb

        table = lancedb.connect(folder).open_table("rows")
        yield lambda query: [
            row["number"] for row in table.search(query).distance_type("cosine").limit(K).to_list() if row["text"]
        ]

    return add, opened


def _qdrant() -> tuple[Callable, Callable]:
    def add(folder: Path, rows: np.ndarray) -> None:
        from qdrant_client import QdrantClient, models

        client = QdrantClient(path=str(folder))
        client.create_collection("rows", models.VectorParams(size=rows.shape[1], distance=models.Distance.COSINE))
        for numbers, part in _parts(rows):
            pairs = zip(numbers, part.tolist(), strict=True)
            points = [models.PointStruct(id=n, vector=row, payload={"text": _text(n)}) for n, row in pairs]
            client.upsert("rows", points)
        client.close()

    @contextmanager
    def opened(folder: Path) -> Iterator[Search]:
        from qdrant_client import QdrantClient

        client = QdrantClient(path=str(folder))
        yield lambda query: [int(point.id) for point in client.query_points("rows", query, limit=K).points]
        client.close()

    return add, opened


def _chroma() -> tuple[Callable, Callable]:
    def add(folder: Path, rows: np.ndarray) -> None:
        import chromadb

        client = chromadb.PersistentClient(str(folder))
        collection = client.create_collection("rows", metadata={"hnsw:space": "cosine"}, embedding_function=None)
        for numbers, part in _parts(rows):
            collection.add(ids=list(map(str, numbers)), embeddings=part, documents=[_text(n) for n in numbers])
        chromadb.api.client.SharedSystemClient.clear_system_cache()  # closes it

    @contextmanager
    def opened(folder: Path) -> Iterator[Search]:
        import chromadb

        collection = chromadb.PersistentClient(str(folder)).get_collection("rows", embedding_function=None)

        def search(query: np.ndarray) -> list[int]:
            return [int(id) for id in collection.query(query_embeddings=query[None], n_results=K)["ids"][0]]

        yield search

    return add, opened


SYSTEMS = {
    "bertkit": _bertkit("int8"),
    "bertkit, scan float32": _bertkit("float32"),
    "bertkit, scan 1-bit": _bertkit("1-bit"),
    "sqlite-vec": _sqlite_vec(),
    "LanceDB": _lancedb(with_index=False),
    "LanceDB, default index": _lancedb(with_index=True),
    "Qdrant, local": _qdrant(),
    "Chroma": _chroma(),
}


def _described(results: dict) -> str:
    lines = [
        f"# Stores: {results['num_rows']:,} x {results['dimensions']}, top {results['k']}: {results['rows']}",
        "",
        "| store | add, s | open and first search, s | one search, ms | recall@10 | disk, MB |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {one['add_s']:.1f} | {one['first_search_s']:.2f} | {one['search_ms']:.1f} | "
        f"{one['recall_at_10']:.3f} | {one['bytes'] / 1e6:.0f} |"
        for name in SYSTEMS
        if (one := results["systems"].get(name)) is not None
    ]
    return "\n".join([*lines, "", *report.skipped_lines(results)])


if __name__ == "__main__":
    main()
