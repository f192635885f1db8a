"""Commits of a store with a full disk and crashes at steps that are drawn from one seed: a failing seed is named, and
repeats."""

import errno
import os
import random
import shutil
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from search_stores import IDENTITY, record, records, same

from bertkit.errors import StoreError
from bertkit.search import Record, VectorStore


class Killed(BaseException):
    """The process ends here; what is on the disk is in the image."""


class Disk:
    """The system calls of a writer; one of the next can find no room, write a part, or be the last of its process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.image = folder, folder.with_name("image")
        self.fault, self.left = "", 0
        monkeypatch.setattr(os, "pwrite", partial(self.do, os.pwrite))
        monkeypatch.setattr(os, "fsync", partial(self.do, lambda handle: None))  # a process ends, not the machine

    def do(self, call, *given):
        self.left -= 1
        is_write = len(given) == 3
        if self.fault and self.left <= 0 and (is_write or self.fault == "crash"):
            fault, self.fault = self.fault, ""
            if fault == "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if fault == "part":
                handle, content, at = given
                return call(handle, content[: len(content) // 2], at)
            shutil.copytree(self.folder, self.image)
            raise Killed
        return call(*given)


def change_of(draw: random.Random, rows: dict[str, Record]):
    """A change that is drawn, as a function of a store, and the records after it."""
    kind = draw.choice(["add", "upsert", "delete", "compact"])
    if kind == "compact":
        return VectorStore.compact, rows
    if kind == "delete" and rows:
        gone = draw.sample(sorted(rows), draw.randrange(1, len(rows) + 1))
        return lambda store: store.delete(gone), {name: row for name, row in rows.items() if name not in gone}
    first = draw.randrange(60) if kind == "upsert" else max((int(name[1:]) for name in rows), default=-1) + 1
    added = records(draw.randrange(1, 30), first=first)
    if kind == "upsert":
        added = [record(int(one.id[1:]), f"changed {draw.random()}") for one in added]
    return lambda store: store.upsert(added), rows | {one.id: one for one in added}


def holds(store: VectorStore, rows: dict[str, Record]) -> bool:
    kept = {one.id: one for one in store.records()}
    return kept.keys() == rows.keys() and all(same(kept[name], row) for name, row in rows.items())


def simulate(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Eight changes of a store, with a reader that holds an older commit; what became of them."""
    draw, fates, rows = random.Random(seed), Counter(), {}
    store = VectorStore.create(folder, IDENTITY)
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch)
        for _ in range(8):
            change, after = change_of(draw, rows)
            with ExitStack() as reading:
                if change is not VectorStore.compact:  # which waits for readers
                    snapshot = reading.enter_context(store.snapshot())
                    before = snapshot.numbers().tolist()
                disk.fault, disk.left = draw.choice(["", "full", "part", "crash"]), draw.randrange(1, 7)
                try:
                    change(store)
                    fate, rows = "committed", after
                except StoreError as error:
                    assert "No space left" in str(error)
                    fate = "full"
                except Killed:
                    fate = "killed"
                disk.fault = ""
                if change is not VectorStore.compact:
                    assert snapshot.numbers().tolist() == before, "a reader sees an unfinished change"
            fates[fate] += 1
            if fate == "killed":
                store.close()
                shutil.rmtree(folder)
                disk.image.rename(folder)
                store = VectorStore.open(folder)
                if not holds(store, rows):  # it was committed, and its process ended before it could say so
                    rows = after
            assert store.verify() == [] and holds(store, rows), fate
    store.close()
    return fates


def test_a_commit_is_whole_or_absent_after_a_full_disk_or_a_crash_at_any_step(tmp_path, monkeypatch):
    fates = Counter()
    for seed in range(12):
        try:
            fates += simulate(seed, tmp_path / str(seed) / "store", monkeypatch)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert all(fates[fate] > 5 for fate in ("committed", "full", "killed")), fates


@pytest.mark.slow
def test_a_thousand_changes_of_a_store(tmp_path, monkeypatch):
    for seed in range(12, 140):
        try:
            simulate(seed, tmp_path / str(seed) / "store", monkeypatch)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_full_disk_at_the_name_of_the_lock_leaves_the_store_writable(tmp_path, monkeypatch):
    def full(handle, content, at):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with VectorStore.create(tmp_path / "store", IDENTITY) as store:
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
            patch.setattr(os, "pwrite", full)
            store.add(records(3))
        store.add(records(3))
        assert store.count() == 3
