"""The store of a folder: transactions, snapshots, durability."""

import contextlib
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search_stores import IDENTITY, expected_ids, record, records, vector_of

from bertkit.errors import StoreError, UsageError
from bertkit.neighbors import Nearest, nearest
from bertkit.search import Equal, OneOf, SearchReport, VectorStore
from bertkit.search.store.writer_lock import WriterLock


class WordIndex:
    """A text index for tests: which record has which word."""

    def create(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS word (word TEXT, number INTEGER)")

    def covers(self, connection: sqlite3.Connection) -> bool:
        return True

    def add(self, connection: sqlite3.Connection, rows) -> None:
        pairs = [(word, number) for number, text, _ in rows for word in text.split()]
        connection.executemany("INSERT INTO word VALUES (?, ?)", pairs)

    def remove(self, connection: sqlite3.Connection, numbers) -> None:
        connection.executemany("DELETE FROM word WHERE number = ?", [(number,) for number in numbers])

    def verify(self, connection: sqlite3.Connection) -> list[str]:
        stray = connection.execute("SELECT count(*) FROM word WHERE number NOT IN (SELECT number FROM record)")
        return ["words of no record"] if stray.fetchone()[0] else []

    def clear(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM word")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_store_can_be_reopened(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        store.add(records(30))
    with VectorStore.open(folder) as store:
        assert store.identity == IDENTITY and store.identity.model_name == "a-model"
        store.add(records(5, first=30))
        assert store.count() == 35
        assert store.search(record(33).vector, IDENTITY, k=1)[0].id == "r33"


def test_text_index_is_part_of_the_same_commits(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY, WordIndex()) as store:
        store.add(records(20))
        with pytest.raises(UsageError), store.transaction():
            store.delete(["r1"])
            store.add([record(2)])
        store.upsert([record(3, "chestnut")])
        store.delete(["r4"])
        with store.snapshot() as snapshot:
            results = snapshot.connection.execute("SELECT DISTINCT number FROM word ORDER BY number").fetchall()
            assert [number for (number,) in results] == snapshot.numbers().tolist()
            (chestnut,) = snapshot.connection.execute("SELECT number FROM word WHERE word = 'chestnut'").fetchone()
            assert [one.id for one in snapshot.records([chestnut])] == ["r3"]
            assert snapshot.numbers(Equal("number", 3)).tolist() == [chestnut]


def test_filter_on_text_with_nul(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        store.add([record(1, name="a"), record(2, name="a\0b"), record(3, name="a\0c")])
        assert [one.id for one in store.records(OneOf("name", ("a\0b", 7)))] == ["r2"]
        assert [one.id for one in store.records(OneOf("name", ("a", "a\0c")))] == ["r1", "r3"]


def test_snapshot_does_not_see_later_changes(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store, VectorStore.open(folder) as reader:
        store.add(records(20))
        with reader.snapshot() as snapshot:
            store.delete([f"r{number}" for number in range(10)])
            store.add(records(20, first=20))
            assert snapshot.count() == 20 and len(snapshot.numbers()) == 20
            ((numbers, _),) = snapshot.search(record(3).vector[None], IDENTITY, k=1)
            assert [one.id for one in snapshot.records(numbers)] == ["r3"]
        assert reader.count() == 30


def test_nested_change_that_fails_is_undone_alone(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        with store.transaction() as connection:
            connection.execute("CREATE TABLE mine (name TEXT)")
            store.add(records(3))
            with pytest.raises(UsageError):
                store.add([record(5), record(1)])
            store.add([record(6)])
        assert [one.id for one in store.records()] == ["r0", "r1", "r2", "r6"]
        assert store.search(record(6).vector, IDENTITY, k=1)[0].id == "r6"


def test_compaction_beside_another_writing_thread(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store, ThreadPoolExecutor(1) as threads:
        store.add(records(500))
        changes = [threads.submit(store.upsert, [record(number)]) for number in range(480, 520)]
        for _ in range(15):
            store.compact()
        for change in changes:
            change.result()
        assert store.count() == 520 and store.verify() == []


def test_opening_a_folder_without_store_raises(folder: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        VectorStore.open(folder)
    folder.mkdir()
    (folder / "store.sqlite3").write_bytes(b"something else" * 100)
    with pytest.raises(StoreError, match="not a database: restore a copy of the folder, or index"):
        VectorStore.open(folder)
    with pytest.raises(UsageError, match="not an empty folder"):
        VectorStore.create(folder, IDENTITY)


class StoppedIndex(WordIndex):
    """Ends the process within the transaction that creates the tables."""

    def create(self, connection: sqlite3.Connection) -> None:
        super().create(connection)
        os._exit(9)


@pytest.mark.parametrize("files", [None, {"": b""}, {"": b"", "-wal": b"", "-shm": b""}])
def test_store_whose_creation_was_killed_can_be_created_again(folder: Path, files: dict[str, bytes] | None) -> None:
    if files is None:
        child = os.fork()
        if child == 0:
            VectorStore.create(folder, IDENTITY, StoppedIndex())
        os.waitpid(child, 0)
        assert (folder / "store.sqlite3").stat().st_size > 0
    else:
        folder.mkdir()
        for ending, content in files.items():
            (folder / f"store.sqlite3{ending}").write_bytes(content)
    with pytest.raises(StoreError, match=r"store\.sqlite3 is missing or empty; create a store first"):
        VectorStore.open(folder)
    with VectorStore.create(folder, IDENTITY) as store:
        store.add(records(3))
        assert store.verify() == []
    with pytest.raises(UsageError, match="open the store in it"):
        VectorStore.create(folder, IDENTITY)
    with VectorStore.open(folder) as store:
        assert store.count() == 3


def test_database_of_something_else_is_kept(folder: Path) -> None:
    folder.mkdir()
    with closing(sqlite3.connect(folder / "store.sqlite3")) as connection:
        connection.execute("CREATE TABLE other (number INTEGER)")
    with pytest.raises(UsageError, match="not an empty folder"):
        VectorStore.create(folder, IDENTITY)
    with pytest.raises(StoreError, match="store was not made by this version of bertkit: index the documents"):
        VectorStore.open(folder)


def test_store_that_another_process_creates_and_writes_is_named(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        store.add([record(1)])
        with pytest.raises(StoreError, match=r"being written by process \d+ on "):
            VectorStore.create(folder, IDENTITY)
    with pytest.raises(UsageError, match="open the store in it"):
        VectorStore.create(folder, IDENTITY)
    other = folder.with_name("other")
    other.mkdir()
    lock = WriterLock(other)
    lock.acquire()  # as while it is created
    with pytest.raises(StoreError, match=r"being written by process \d+ on "):
        VectorStore.create(other, IDENTITY)
    lock.release()
    VectorStore.create(other, IDENTITY).close()


@pytest.mark.parametrize(
    "format, message",
    [
        (4, "store has format 4, expected 3: update bertkit"),
        (2, "store was not made by this version of bertkit: index the documents into a new folder"),
        (1, "store was not made by this version of bertkit: index the documents into a new folder"),
        (0, "store was not made by this version of bertkit: index the documents into a new folder"),
        (-1, "store was not made by this version of bertkit: index the documents into a new folder"),
    ],
)
def test_store_of_another_version_raises(folder: Path, format: int, message: str) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        store.add(records(3))
    with contextlib.closing(sqlite3.connect(folder / "store.sqlite3")) as connection, connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        connection.execute(f"PRAGMA user_version = {format}")
    with pytest.raises(StoreError, match=message):
        VectorStore.open(folder)


@pytest.mark.full
def test_scan_is_fixed_when_a_store_is_made(folder: Path) -> None:
    with pytest.raises(UsageError, match="scan='int4': expected one of 'int8', 'float32', '1-bit'"):
        VectorStore.create(folder, IDENTITY, scan="int4")
    rows = records(2500)
    for scan in ("int8", "float32", "1-bit"):
        with VectorStore.create(folder / scan, IDENTITY, scan=scan) as store:
            store.add(rows)
            store.delete(["r7"])
            store.compact()
            assert store.verify() == []
        assert (folder / scan / f"blocks.2.{scan}").exists()
        with VectorStore.open(folder / scan) as store:
            report = SearchReport()
            hits = store.search(vector_of("query"), IDENTITY, 5, report=report)
            assert store.scan == scan and report.is_exact == (scan != "1-bit")
            assert [hit.id for hit in hits] == expected_ids(rows[:7] + rows[8:], vector_of("query"), 5)


def test_second_writer_raises(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store, VectorStore.open(folder) as other:
        store.add(records(3))
        with pytest.raises(StoreError, match=r"being written by process \d+ on "):
            other.add([record(7)])
        assert other.search(vector_of("q"), IDENTITY) != []
    with VectorStore.open(folder) as other:
        other.add([record(7)])


def test_searches_from_many_threads_equal_those_of_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = records(700)
    with VectorStore.create(folder, IDENTITY) as store:
        store.add(rows)
        wheres = [None, Equal("even", True), Equal("even", 1)]
        asked = [(rows[index].vector, 1 + index % 7, wheres[index % 3]) for index in range(48)]
        alone = [[hit.id for hit in store.search(query, IDENTITY, k, where)] for query, k, where in asked]
        served: list[int] = []

        def counted(queries: np.ndarray, *rest: Any) -> list[Nearest]:
            served.append(len(queries))
            time.sleep(0.01)
            return nearest(queries, *rest)

        monkeypatch.setattr("bertkit.neighbors.nearest", counted)
        with ThreadPoolExecutor(16) as threads:
            results = threads.map(lambda each: store.search(each[0], IDENTITY, each[1], each[2]), asked)
            assert [[hit.id for hit in hits] for hits in results] == alone
        assert sum(served) == 48 and max(served) > 2

        def broken(*arguments: Any) -> list[Nearest]:
            time.sleep(0.01)
            raise MemoryError

        monkeypatch.setattr("bertkit.neighbors.nearest", broken)
        with ThreadPoolExecutor(8) as threads:
            futures = [threads.submit(store.search, row.vector, IDENTITY) for row in rows[:8]]
            assert all(isinstance(future.exception(), MemoryError) for future in futures)
        monkeypatch.undo()
        assert store.search(rows[5].vector, IDENTITY, k=1)[0].id == "r5"
