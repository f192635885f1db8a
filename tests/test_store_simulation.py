"""Commits of a store with a full disk and crashes at steps that are drawn from one seed: a failing seed is named, and
repeats."""

import errno
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from search_stores import IDENTITY, records
from simulated_store import SimulatedStore

from bertkit.errors import StoreError
from bertkit.search import VectorStore


def simulate(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Eight changes of a store, with a reader that holds an older commit; what became of them."""
    try:
        with monkeypatch.context() as patch:
            store = SimulatedStore(random.Random(seed), folder, patch)
            for _ in range(4):
                store.read(store.change)
                store.change()
        store.close()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return store.fates


def test_a_commit_is_whole_or_absent_after_a_full_disk_or_a_crash_at_any_step(tmp_path, monkeypatch):
    fates = Counter()
    for seed in range(12):
        fates += simulate(seed, tmp_path / str(seed) / "store", monkeypatch)
    assert all(fates[fate] > 5 for fate in ("committed", "full", "killed")), fates


@pytest.mark.slow
def test_a_thousand_changes_of_a_store(tmp_path, monkeypatch):
    for seed in range(12, 140):
        simulate(seed, tmp_path / str(seed) / "store", monkeypatch)


def test_a_full_disk_at_the_name_of_the_lock_leaves_the_store_writable(tmp_path, monkeypatch):
    def full(handle, content, at):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with VectorStore.create(tmp_path / "store", IDENTITY) as store:
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
            patch.setattr(os, "pwrite", full)
            store.add(records(3))
        store.add(records(3))
        assert store.count() == 3
