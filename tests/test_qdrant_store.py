"""What only the store on Qdrant does."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from search_stores import IDENTITY, on_qdrant, record, records

from bertkit.errors import UsageError
from bertkit.search import Equal, Record, VectorStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VectorStore]:
    with on_qdrant(tmp_path, IDENTITY) as store:
        yield store


@pytest.mark.full
def test_records_of_writers_at_the_same_time_are_all_listed(
    store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertkit.search import qdrant

    monkeypatch.setattr(qdrant, "POINTS_AT_ONCE", 4)
    monkeypatch.setattr("time.time_ns", lambda: 1000)  # of every writer
    for number in range(11):
        store.add([record(number)])  # all with the same number
    store.add(records(6, first=11))
    assert sorted(int(one.id[1:]) for one in store.records()) == list(range(17))


@pytest.mark.full
def test_keys_that_no_filter_can_name_are_refused(store: VectorStore) -> None:
    store.add([record(1, **{"a key [0].é'\\": 7})])
    assert store.count(Equal("a key [0].é'\\", 7)) == 1
    message = r"metadata key 'we\"ird': a store on Qdrant cannot filter on a key with '\"': rename it"
    with pytest.raises(UsageError, match=message):
        store.upsert([record(2), record(3, **{'we"ird': 1})])
    with pytest.raises(UsageError, match=message):
        store.count(Equal('we"ird', 1))
    assert store.count() == 1


def test_vectors_are_normalized_for_the_cosine(store: VectorStore) -> None:
    given = record(1)
    store.add([Record("r1", given.text, 3 * given.vector)])
    assert np.linalg.norm(store.get(["r1"])[0].vector) == pytest.approx(1)
