"""A store whose changes, and the faults of its disk, are drawn."""

import errno
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
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


class SimulatedStore:
    """A store that one process writes, with faults, while another one reads it.

    Attributes:
        fates: what became of the changes and reads.
    """

    def __init__(self, draw: random.Random, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._draw, self._folder, self._num_readers = draw, folder, 0
        self._stores = [VectorStore.create(folder, IDENTITY)]  # the last one is open, the others are those of readers
        self._disk, self._rows = Disk(folder, patch), dict[str, Record]()
        self.fates = Counter[str]()

    def read(self, meanwhile: Callable[[], object]) -> None:
        """Read the last commit, and after what happens ``meanwhile`` again."""
        with self._stores[-1].snapshot() as snapshot:
            before, self._num_readers = snapshot.numbers().tolist(), self._num_readers + 1
            try:
                meanwhile()
            finally:
                self._num_readers -= 1
            assert snapshot.numbers().tolist() == before, "a reader sees an unfinished change"
        self.fates["read"] += 1

    def change(self) -> None:
        """Make a change, which finds no room on the disk, or whose process is killed, or which is committed."""
        change, after = change_of(self._draw, self._rows)
        if change is VectorStore.compact and self._num_readers:
            return  # it waits for readers
        self._disk.fault, self._disk.left = self._draw.choice(["", "full", "part", "crash"]), self._draw.randrange(1, 7)
        try:
            change(self._stores[-1])
            fate, self._rows = "committed", after
        except StoreError as error:
            assert "No space left" in str(error)
            fate = "full"
        except Killed:
            fate = "killed"
        self._disk.fault = ""
        self.fates[fate] += 1
        if fate == "killed":
            self._recover(after)
        store = self._stores[-1]
        assert store.verify() == [] and holds(store, self._rows), fate

    def _recover(self, after: dict[str, Record]) -> None:
        if not self._num_readers:
            self.close()
        shutil.rmtree(self._folder)
        self._disk.image.rename(self._folder)
        self._stores.append(VectorStore.open(self._folder))
        if not holds(self._stores[-1], self._rows):  # it was committed, and its process ended before it could say so
            self._rows = after

    def close(self) -> None:
        """Close what was opened."""
        while self._stores:
            self._stores.pop().close()
