"""Durability of a store: damage, kills, a full disk, a read-only disk."""

import json
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from full_disk import files_end_after
from search_stores import IDENTITY, embed, flip_byte, record, records, same, vector_of
from test_store_folder import WordIndex

from bertkit.errors import StoreError
from bertkit.search import Equal, Identity, Record, VectorStore
from bertkit.search.store.row_files import RowFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 1,100 records, two of them removed."""
    folder = tmp_path_factory.mktemp("whole") / "store"
    with VectorStore.create(folder, IDENTITY, WordIndex()) as store:
        store.add(records(1102))
        store.delete(["r0", "r1101"])
    return folder


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("seed", range(24))
def test_flipped_byte_is_detected_and_repaired(whole: Path, folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    shutil.copytree(whole, folder)
    damaged = draw.choice([file for file in sorted(folder.iterdir()) if file.name != "writer.lock"])
    flip_byte(damaged, draw.randrange(damaged.stat().st_size))
    expected = {row.id: row for row in records(1102)[1:-1]}
    try:
        with VectorStore.open(folder, WordIndex()) as store:
            problems = store.verify()
            if not problems:  # a byte without meaning
                assert all(map(same, store.records(), expected.values()))
                return
            report = store.repair(embed)
            assert store.verify() == []
            left = {row.id: row for row in store.records()}
            assert len(left) == 1100 - len(report.removed)
            for id in left.keys() & expected.keys():
                assert same(left[id], expected[id])
            assert len(expected.keys() - left.keys()) == len(report.removed) <= 1
            if damaged.suffix == ".float32":
                assert len(report.embedded_again) in (1023, 77) and not report.removed
            for row in (expected["r5"], expected["r1100"]):
                assert store.search(row.vector, IDENTITY, k=1)[0].id in (row.id, *report.removed)
    except StoreError as error:
        assert damaged.suffix == ".sqlite3" and (
            "damaged" in str(error) or "malformed" in str(error) or "repaired" in str(error)
        )


def test_lost_vectors_are_recomputed(whole: Path, folder: Path) -> None:
    shutil.copytree(whole, folder)
    for file in folder.glob("*.1.*"):
        file.unlink()
    with VectorStore.open(folder, WordIndex()) as store:
        with pytest.raises(StoreError, match=r"repair it with VectorStore\.repair, or index"):
            store.search(vector_of("q"), IDENTITY)
        assert any("missing" in line for line in store.verify())
        assert len(store.repair(embed).embedded_again) == 1100
        assert store.verify() == [] and all(map(same, store.records(), records(1102)[1:-1]))


def test_damage_in_a_text_is_named_and_its_record_removed(whole: Path, folder: Path) -> None:
    shutil.copytree(whole, folder)
    database = folder / "store.sqlite3"
    text = records(578)[577].text.encode()
    flip_byte(database, database.read_bytes().index(text + b"{") + 1)  # its metadata follow
    with VectorStore.open(folder, WordIndex()) as store:
        assert any("record 'r577' is damaged" in line for line in store.verify())
        assert store.repair(embed).removed == ["r577"]
        assert store.verify() == [] and store.count() == 1099
        store.add([record(577)])


def test_damage_in_the_index_of_equal_texts_loses_nothing(whole: Path, folder: Path) -> None:
    shutil.copytree(whole, folder)
    database, text = folder / "store.sqlite3", records(578)[577].text.encode()
    content = database.read_bytes()
    places = [place for place in range(len(content)) if content.startswith(text, place)]
    flip_byte(database, next(one for one in places if not content.startswith(text + b"{", one)) + 1)
    with VectorStore.open(folder, WordIndex()) as store:
        assert any("record_text" in line for line in store.verify())
        assert not store.repair(embed).removed and store.verify() == []
        assert all(map(same, store.records(), records(1102)[1:-1]))


def test_vectors_are_on_disk_before_the_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    sync, write = RowFile.sync, RowFile.write
    monkeypatch.setattr(
        RowFile, "write", lambda self, *rest: (steps.append(f"write {self.path.name}"), write(self, *rest))
    )
    monkeypatch.setattr(RowFile, "sync", lambda self: (sync(self), steps.append(f"sync {self.path.name}")))
    with VectorStore.create(folder, IDENTITY) as store:
        with store.transaction() as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            connection.set_trace_callback(lambda statement: steps.append(statement.split()[0]))
        for change in (lambda: store.add(records(3)), store.compact):
            steps.clear()
            change()
            written = {step.removeprefix("write ") for step in steps if step.startswith("write ")}
            commit = steps.index("COMMIT")
            assert len(written) >= 2
            for name in written:
                last_write = max(index for index, step in enumerate(steps) if step == f"write {name}")
                assert last_write < steps.index(f"sync {name}", last_write) < commit


def test_tail_without_rows_is_overwritten(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        store.add(records(10))
        for file in folder.glob("*.1.*"):
            with file.open("ab") as content:
                content.write(b"\xff" * 5000)
        store.add(records(10, first=10))
        assert store.verify() == [] and all(map(same, store.records(), records(20)))


def test_what_a_killed_writer_left_is_removed_by_the_next(folder: Path) -> None:
    VectorStore.create(folder, IDENTITY).close()
    unfinished = folder / ".lexical.9.0123456789abcdef.partial"
    unfinished.mkdir()
    (unfinished / "rows.npy").write_bytes(b"0")
    with VectorStore.open(folder) as store:
        assert store.count() == 0 and unfinished.exists()  # a reader removes nothing of another process
        store.add(records(1))
        assert not unfinished.exists()


@pytest.mark.full
def test_full_disk_rolls_back_the_change(folder: Path) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        store.add(records(100))
        for limit in (9_000, 12_000, 100_000):
            with (
                files_end_after(limit),
                pytest.raises(StoreError, match="The last commit is kept, the change in progress is lost"),
            ):
                store.upsert(records(3000, first=50))
            assert store.count() == 100
            assert all(map(same, store.records(), records(100)))
        store.upsert(records(200, first=50))
        assert store.verify() == [] and store.count() == 250


def test_rollback_after_several_new_generations(folder: Path) -> None:
    other = MODELS[1]
    with VectorStore.create(folder, IDENTITY) as store, VectorStore.open(folder) as reader:
        store.add(records(30))
        for change in (
            store.compact,
            lambda: store.switch(other, lambda texts: model_vectors(other, texts)),
            lambda: store.repair(embed),
        ):
            with pytest.raises(KeyboardInterrupt), store.transaction():
                change()
                store.delete(["r1"])
                store.compact()
                assert VectorStore.open(folder).count() == reader.count() == 30  # nothing is committed yet
                raise KeyboardInterrupt
            with store.transaction():
                store.compact()
                with pytest.raises(KeyboardInterrupt), store.transaction():
                    change()
                    store.compact()
                    raise KeyboardInterrupt
            assert store.verify() == [] and all(map(same, store.records(), records(30)))
            assert len(list(folder.glob("vectors.*"))) == 1


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder / "store"
    shutil.rmtree(folder)


@pytest.mark.parametrize("is_closed", [True, False])
def test_read_only_store_can_be_searched(readable: Path, is_closed: bool) -> None:
    store = VectorStore.create(readable, IDENTITY)
    store.add(records(30))
    if is_closed:
        store.close()
    else:  # as after a crash: the last commits are in SQLite's log alone
        copy = readable.with_name("copy")
        shutil.copytree(readable, copy)
        store.close()
        shutil.rmtree(readable)
        copy.rename(readable)
        (readable / "store.sqlite3-shm").unlink()
    readable.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with VectorStore.open(readable) as store:
            assert store.search(record(5).vector, IDENTITY, k=1)[0].id == "r5" and store.count() == 30
            with pytest.raises(StoreError, match="cannot be written: Permission denied; it can be searched"):
                store.add([record(77)])
    finally:
        os.seteuid(user)
        readable.chmod(0o755)


def test_read_only_store_reads_the_last_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = VectorStore.create(folder, IDENTITY)
    store.add(records(3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *rest, **options: False)
        reader = VectorStore.open(folder)
    with reader:
        for number in range(3, 9):
            snapshot = reader.records()
            next(snapshot)
            store.add([record(number)])
            if number % 3 == 1:
                store.compact()
            if number % 2:
                store.close()  # empties SQLite's log
                store = VectorStore.open(folder)
            assert len(list(snapshot)) == number - 1  # the state at its start
            assert reader.count() == number + 1 and all(map(same, reader.records(), records(number + 1)))
            assert reader.search(record(number).vector, IDENTITY, k=1)[0].id == f"r{number}"
        stats: list[Path] = []
        monkeypatch.setattr(Path, "stat", lambda path: (stats.append(path), os.stat(path))[1])
        assert store.count() == 9 and stats == []  # in a folder that can be written
        store.close()


def test_copy_of_a_read_only_store_is_of_one_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with VectorStore.create(folder, IDENTITY) as store:
        monkeypatch.setattr(os, "access", lambda *rest, **options: False)
        with VectorStore.open(folder) as reader:
            store.add(records(300))
            store.delete([f"r{number}" for number in range(0, 300, 2)])
            changes, copy = [store.compact], shutil.copyfile

            def copied(source: Path, target: Path) -> None:
                if source.name.endswith("-wal") and changes:  # a writer empties the log, and begins it again
                    changes.pop()()
                    store.upsert([record(7, "last")])
                copy(source, target)

            monkeypatch.setattr(shutil, "copyfile", copied)
            assert [row.text for row in reader.records(Equal("number", 7))] == ["last"] and changes == []
            assert reader.count() == 150 and reader.verify() == []


# ---- kills

MODELS = [IDENTITY, replace(IDENTITY, model_hash="b", dimensions=17)]


def model_vectors(identity: Identity, texts: list[str]) -> np.ndarray:
    return np.stack([vector_of(text + identity.model_hash, identity.dimensions) for text in texts])


class Script:
    """Changes that follow from their number and the state before them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # what the store should hold
        self.model = 0

    def step(self, number: int, store: VectorStore | None) -> None:
        draw = random.Random(number)
        kind = draw.choices(["upsert", "delete", "both", "compact", "switch"], [6, 3, 2, 1, 1])[0]
        identity = MODELS[self.model]
        new = {f"r{draw.randrange(60)}": f"{number} {draw.random()}" for _ in range(draw.randrange(1, 30))}
        old = draw.sample(sorted(self.texts), min(len(self.texts), draw.randrange(0, 12)))
        if kind in ("delete", "both"):
            self.texts = {id: text for id, text in self.texts.items() if id not in old}
        if kind in ("upsert", "both"):
            self.texts |= new
        if kind == "switch":
            self.model = 1 - self.model
        if store is None:
            return
        rows = [
            Record(id, text, model_vectors(identity, [text])[0], metadata={"number": number})
            for id, text in new.items()
        ]
        if kind == "compact":
            store.compact()
        elif kind == "switch":
            store.switch(MODELS[self.model], lambda texts: model_vectors(MODELS[self.model], texts), batch_size=7)
        else:
            with store.transaction():
                if kind in ("delete", "both"):
                    store.delete(old)
                if kind in ("upsert", "both"):
                    store.upsert(rows)

    def check(self, store: VectorStore) -> bool:
        identity = MODELS[self.model]
        rows = list(store.records())
        if store.identity != identity or {row.id: row.text for row in rows} != self.texts:
            return False
        return all(np.array_equal(row.vector, model_vectors(identity, [row.text])[0]) for row in rows)


def run_until_killed(folder: Path, first: int, seconds: float) -> int:
    """Change the store in a process that is killed after some time; returns how many steps it acknowledged."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            script = Script()
            for number in range(first):
                script.step(number, None)
            with VectorStore.open(folder, WordIndex()) as store:
                os.write(write, b"open\n")
                for number in range(first, first + 10_000):
                    script.step(number, store)
                    os.write(write, json.dumps(number).encode() + b"\n")
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as acknowledged:
        assert acknowledged.readline() == "open\n"
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        numbers = [int(line) for line in acknowledged]
    return numbers[-1] + 1 if numbers else first


def kill(folder: Path, num_kills: int, seed: int) -> None:
    draw = random.Random(seed)
    VectorStore.create(folder, IDENTITY, WordIndex()).close()
    script, done, kills = Script(), 0, 0
    while kills < num_kills or done < 2 * num_kills:
        kills += 1
        acknowledged = run_until_killed(folder, done, draw.uniform(0, 0.3))
        for number in range(done, acknowledged):
            script.step(number, None)
        done = acknowledged
        with VectorStore.open(folder, WordIndex()) as store:
            assert store.verify() == []
            if not script.check(store):  # the change that was in progress was committed, and not acknowledged
                script.step(done, None)
                done += 1
                assert script.check(store)
            with store.snapshot() as snapshot:
                words = snapshot.connection.execute("SELECT DISTINCT number FROM word ORDER BY number").fetchall()
                assert [number for (number,) in words] == snapshot.numbers().tolist()


@pytest.mark.full
def test_nothing_acknowledged_is_lost_by_kills(folder: Path) -> None:
    kill(folder, 10, seed=1)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_many_kills(folder: Path) -> None:
    kill(folder, 200, seed=2)


def test_killed_writer_leaves_no_lock(folder: Path) -> None:
    VectorStore.create(folder, IDENTITY).close()
    run_until_killed(folder, 0, 0.2)
    with VectorStore.open(folder) as store, sqlite3.connect(folder / "store.sqlite3"):
        store.delete(["r1"])
