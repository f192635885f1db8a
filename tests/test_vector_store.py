"""The interface of vector stores, tested on every implementation."""

import json
import math
import sqlite3
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from search_stores import (
    DIMENSIONS,
    IDENTITY,
    STORES,
    Make,
    embed,
    expected_ids,
    record,
    records,
    same,
    vector_of,
)

from bertkit.documents.metadata import stored_value
from bertkit.errors import DataError, UsageError
from bertkit.search import (
    And,
    Between,
    Contains,
    Equal,
    Filter,
    InDocument,
    Not,
    OneOf,
    Or,
    Record,
    SearchReport,
    VectorStore,
    export_parquet,
    filter_of,
    read_identity,
    read_records,
)
from bertkit.search.filter_syntax import filter_of_condition


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest) -> Make:
    return STORES[request.param]


@pytest.fixture
def store(make: Make, tmp_path: Path):
    with make(tmp_path / "store", IDENTITY) as store:
        yield store


def ids(hits: list) -> list[str]:
    return [one.id for one in hits]


@pytest.mark.full(sample=1)
def test_records_come_back_as_they_were_added(store: VectorStore) -> None:
    rows = records(2050)
    store.add(rows[:3])
    store.add(rows[3:])
    assert store.count() == 2050
    assert all(map(same, store.get(["r7", "nothing", "r0"]), [rows[7], rows[0]]))
    listed = list(store.records())
    assert len(listed) == 2050 and all(map(same, listed, rows))


@pytest.mark.full(sample=1)
def test_search_equals_brute_force(store: VectorStore) -> None:
    rows = records(1537)
    store.add(rows)
    queries = np.stack([vector_of(text) for text in ("one", "two", "three")])
    results = store.search_many(queries, IDENTITY, k=7)
    for query, hits in zip(queries, results, strict=True):
        assert ids(hits) == expected_ids(rows, query, 7) == ids(store.search(query, IDENTITY, k=7))
        assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5, 6, 7]
        for hit in hits:
            assert same(hit.record, rows[int(hit.id[1:])]) and hit.record.id == hit.id
            cosine = query @ hit.record.vector / np.linalg.norm(query) / np.linalg.norm(hit.record.vector)
            assert abs(hit.score - cosine) < 1e-5


def test_dot_product(make: Make, tmp_path: Path) -> None:
    identity = replace(IDENTITY, similarity="dot")
    rows = [replace(row, vector=row.vector * (1 + int(row.id[1:]) % 7)) for row in records(97)]
    with make(tmp_path / "store", identity) as store:
        store.add(rows)
        query = vector_of("query")
        hits = store.search(query, identity, k=11)
        assert ids(hits) == expected_ids(rows, query, 11, "dot")
        np.testing.assert_allclose([hit.score for hit in hits], [query @ hit.record.vector for hit in hits], rtol=1e-5)


def test_upsert_replaces_and_delete_removes(store: VectorStore) -> None:
    store.add(records(40))
    changed = replace(record(3, "something else"), metadata={"number": 1003})
    store.upsert([changed, record(50)])
    assert store.count() == 41
    assert same(store.get(["r3"])[0], changed)
    assert ids(store.search(changed.vector, IDENTITY, k=1)) == ["r3"]
    assert store.count(Equal("number", 3)) == 0 and store.count(Equal("number", 1003)) == 1
    assert store.delete(["r3", "r3", "none", "r4"]) == 2
    assert store.delete([]) == 0
    assert store.count() == 39 and store.get(["r3"]) == []
    assert "r3" not in ids(store.search(changed.vector, IDENTITY, k=100))
    store.add([record(3)])
    assert store.count(Equal("number", 3)) == 1


def nested(where: Filter, number: int, width: int = 1) -> Filter:
    """A filter that matches the same, with And and Or in each other."""
    for level in range(number):
        others = tuple(Equal("number", 3 if level % 2 else -row) for row in range(1, 1 + width))
        where = And((where, *others)) if level % 2 else Or((where, *others))
    return where


@pytest.mark.full(sample=4)
@pytest.mark.parametrize(
    ("where", "matches"),
    [
        (Equal("tree", "oak"), lambda n: n % 18 == 11),
        (Equal("even", True), lambda n: n % 2 == 0),
        (Equal("number", 1), lambda n: n == 1),
        (Equal("even", 1), lambda n: False),
        (Equal("half", 3), lambda n: n == 6),
        (Equal("absent", "x"), lambda n: False),
        (Not(Equal("absent", "x")), lambda n: True),
        (OneOf("tree", ("oak", "elm", 7)), lambda n: n % 18 in (3, 11)),
        (OneOf("half", (1, 2.5, "x", True)), lambda n: n in (2, 5)),
        (OneOf("tree", ()), lambda n: False),
        (Between("half", 2.5, 4), lambda n: 5 <= n <= 8),
        (Between("half", low=30), lambda n: n >= 60),
        (Between("tree", 0, 9), lambda n: False),
        (Between("number", 60, 2**64), lambda n: n >= 60),
        (Between("number", -(10**400), 10**400), lambda n: True),
        (Between("number", low=10**400), lambda n: False),
        (Between("number", high=-math.inf), lambda n: False),
        (InDocument(("d0", "d3")), lambda n: n // 5 in (0, 3)),
        (And((Equal("even", True), Not(Between("number", high=40)))), lambda n: n % 2 == 0 and n > 40),
        (Or((Equal("number", 3), InDocument(("d1",)))), lambda n: n == 3 or n // 5 == 1),
        (Or(tuple(Equal("number", n) for n in range(60, 1700))), lambda n: n >= 60),
        (And(tuple(Not(Equal("number", n)) for n in range(60, 1700))), lambda n: n < 60),
        (
            Or((Equal("tree", "ash"), OneOf("tree", ("oak", "a\0b")), Equal("number", 3))),
            lambda n: n % 18 in (0, 11) or n == 3,
        ),
        (Not(Or((Equal("tree", "a\0b"), Equal("a\0b", 1), Between("a\0b", 1)))), lambda n: True),
        (Or(InDocument((f"d{n}",)) for n in (0, 2)), lambda n: n // 5 in (0, 2)),
        (And(()), lambda n: True),
        (Or(()), lambda n: False),
        (Equal("none", None), lambda n: n == 70),
        (Contains("tags", "a"), lambda n: n == 70),
        (Contains("tags", 1.0), lambda n: n == 70),
        (Contains("tags", True), lambda n: False),
        (Or((Contains("tags", 3), Equal("number", 1))), lambda n: n == 1),
        (
            Or((Equal("tags", "a"), OneOf("tags", ("a", 1)), Between("tags", 0, 9), Between("tags", "a", "b"))),
            lambda n: False,
        ),
        (Not(Contains("tags", "a")), lambda n: n < 70),
        (Contains("tree", "oak"), lambda n: False),
        (Between("tree", "maple", "oak"), lambda n: n % 18 in (10, 11)),
        (Between("tree", high="beech"), lambda n: n % 18 in (0, 1)),
        (Between("tree", low="yew\0"), lambda n: False),
        (Between("day", date(2026, 1, 1), date(2026, 1, 31)), lambda n: n == 70),
        (Between("day", "2026-02"), lambda n: False),
        (Equal("day", date(2026, 1, 31)), lambda n: n == 70),
        (OneOf("number", np.arange(3)), lambda n: n < 3),
        (Between("number", np.int8(60), np.float64(64)), lambda n: 60 <= n <= 64),
        (nested(Equal("number", 3), 20), lambda n: n == 3),
        (nested(Equal("number", 3), 19, width=40), lambda n: n == 3),
        (reduce(lambda some, n: Or((some, Equal("number", n))), range(1, 2000), Equal("number", 0)), lambda n: True),
    ],
)
def test_filters(filtered: tuple[VectorStore, list[Record]], where, matches) -> None:
    store, rows = filtered
    expected = [row for row in rows if matches(int(row.id[1:]))]
    assert store.count(where) == len(expected)
    assert ids(list(store.records(where))) == ids(expected)
    query = vector_of("query")
    hits = store.search(query, IDENTITY, k=5, where=where)
    assert ids(hits) == (expected_ids(expected, query, 5) if expected else [])


@pytest.fixture(scope="module", params=STORES)
def filtered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    rows = [*records(70), record(70, none=None, tags=["a", 1, 1.0, "a"], empty=[], day=date(2026, 1, 31))]
    with STORES[request.param](tmp_path_factory.mktemp("filtered") / "store", IDENTITY) as store:
        store.add(rows)
        rows[-1].metadata["day"] = "2026-01-31"  # as it is stored
        yield store, rows


def test_range_to_an_int_of_more_than_64_bits(store: VectorStore) -> None:
    below, above = float(2**64), float(2**64 + 2**12)  # neighbors as float64
    store.add([record(1, wide=2**62), record(2, wide=below), record(3, wide=above)])
    inside = 2**64 + 2**11 + 1  # nearer to ``above``
    assert ids(list(store.records(Between("wide", high=inside)))) == ["r1", "r2"]
    assert ids(list(store.records(Between("wide", low=2**64 + 1)))) == ["r3"]
    assert ids(list(store.records(Between("wide", 2**63, 2**64)))) == ["r2"]
    assert Between("wide", 3, 4) == Between("wide", 3.0, 4) and type(Between("wide", 3).low) is int
    assert ids(list(store.records(Between("wide", low=-(10**400), high=10**400)))) == ["r1", "r2", "r3"]
    assert ids(list(store.records(Between("wide", low=10**400)))) == []
    assert ids(list(store.records(Between("wide", high=-(10**400))))) == []


def test_rejects_ranges_without_order() -> None:
    for ends in ((math.nan, 3), (3, math.nan), (True, 3), (b"a", None), (None, pd.NaT)):
        with pytest.raises(
            UsageError, match=r"filter on 'number': Between got .*, expected a number, str, date or None"
        ):
            Between("number", *ends)
    with pytest.raises(UsageError, match="filter on 'number': Between got 3 and '2026-01-31', expected one type"):
        Between("number", 3, date(2026, 1, 31))


def test_metadata_of_other_libraries_comes_back_as_python_values(store: VectorStore, tmp_path: Path) -> None:
    hour = timezone(timedelta(hours=1))
    values = {
        "int": (np.int64(3), 3),
        "half": (np.float32(0.5), 0.5),
        "is": (np.bool_(True), True),
        "str": (np.str_("a"), "a"),
        "day": (date(2026, 1, 31), "2026-01-31"),
        "stamp": (pd.Timestamp("2026-01-31 08:30"), "2026-01-31T08:30:00"),
        "time": (datetime(2026, 1, 31, 8, 30, tzinfo=hour), "2026-01-31T07:30:00+00:00"),
        "ns": (np.datetime64("2026-01-31T08:30:00", "ns"), "2026-01-31T08:30:00"),
        "day64": (np.datetime64("2026-01-31"), "2026-01-31"),
        "list": (("a", None, date(2026, 1, 31)), ["a", None, "2026-01-31"]),
        "array": (np.arange(3), [0, 1, 2]),
        "empty": ([], []),
    }
    store.add([replace(record(1), metadata={key: given for key, (given, _) in values.items()})])
    (row,) = store.records()
    assert row.metadata == {key: stored for key, (_, stored) in values.items()}
    assert [type(one) for one in row.metadata.values()] == [type(stored) for _, stored in values.values()]
    assert store.count(Between("time", datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))) == 1
    assert store.count(And((Equal("int", np.int8(3)), Contains("array", np.int8(2)), Contains("list", None)))) == 1
    export_parquet(store, tmp_path / "records.parquet")
    assert same(next(read_records(tmp_path / "records.parquet")), row) and store.verify() == []
    store.delete(["r1"])
    assert store.count(Contains("list", "a")) == 0 and store.verify() == []
    for value, message in (
        ([["a"]], "metadata 'k' is a list"),
        ({"a": 1}, "metadata 'k' is a dict"),
        (pd.NaT, "metadata 'k' is nan"),
        (np.ones((2, 2)), "metadata 'k' is a ndarray"),
        ([1, math.inf], "'k' is inf: expected a finite number"),
        (3j, "is a complex"),
    ):
        with pytest.raises(UsageError, match=message):
            stored_value("k", value)
    for make_filter in (lambda: Equal("k", ["a"]), lambda: Contains("k", ["a"]), lambda: OneOf("k", [["a"]])):
        with pytest.raises(UsageError, match="metadata 'k' is a list: expected"):
            make_filter()


@pytest.mark.full(sample=4)
@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ({}, lambda n: True),
        ({"tree": "oak"}, lambda n: n % 18 == 11),
        ({"number": {"$gte": 3, "$lt": 5}, "even": True}, lambda n: n == 4),
        ({"number": {"$gt": 68}}, lambda n: n > 68),
        ({"number": {"$lte": 1}}, lambda n: n <= 1),
        ({"tree": {"$gt": "walnut"}}, lambda n: n % 18 == 17),
        ({"tree": {"$in": ["oak", "elm"]}}, lambda n: n % 18 in (3, 11)),
        ({"number": {"$nin": list(range(69))}}, lambda n: n > 68),
        ({"number": {"$ne": 70}}, lambda n: n < 70),
        ({"tags": {"$contains": "a"}}, lambda n: n == 70),
        (
            {"$and": [{"number": {"$lt": 9}}, {"$or": [{"number": 1}, {"number": 2}, {"number": 10}]}]},
            lambda n: n in (1, 2),
        ),
        ({"$not": {"number": {"$lt": 60}}, "even": False}, lambda n: n >= 60 and n % 2),
        ({"none": None}, lambda n: n == 70),
    ],
)
def test_filters_of_json(filtered: tuple[VectorStore, list[Record]], where: dict, matches) -> None:
    store, rows = filtered
    assert ids(list(store.records(filter_of(where)))) == [one.id for one in rows if matches(int(one.id[1:]))]


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("kind=cats", {"kind": "cats"}),
        ("kind == 'a b'", {"kind": "'a b'"}),
        (' my key != "2" ', {"my key": {"$nin": ["2"]}}),
        ("year>=2021", {"$or": [{"year": {"$gte": "2021"}}, {"year": {"$gte": 2021}}]}),
        ("day < 2021-05-01", {"$or": [{"day": {"$lt": "2021-05-01"}}]}),
        ("is <= true", {"$or": [{"is": {"$lte": "true"}}]}),
        ("code = 007", {"code": "007"}),
        ("id = 12345678901234567890", {"id": "12345678901234567890"}),
        ("x=[1]", {"x": "[1]"}),
        ("x =", {"x": ""}),
        ("x=null", {"$or": [{"x": "null"}, {"x": None}]}),
        ('kind in cats, "2",3', {"kind": {"$in": ["cats", "2", "3", 3]}}),
        ("kind not in cats", {"kind": {"$nin": ["cats"]}}),
        ("tags contains x y", {"$or": [{"tags": {"$contains": "x y"}}]}),
        ("born in city = 5 km", {"born": {"$in": ["city = 5 km"]}}),
        ('{"year": {"$gte": 2021}}', {"year": {"$gte": 2021}}),
    ],
)
def test_filters_of_conditions(filtered: tuple[VectorStore, list[Record]], written: str, where: dict) -> None:
    parsed, expected = filter_of_condition(written), filter_of(where)
    assert parsed == expected or parsed == Or((expected,))


def test_unknown_operators_and_wrong_values_have_one_clear_line() -> None:
    deep: dict = {"a": 1}
    for _ in range(3000):
        deep = {"$not": deep}
    names = r"expected one of \$eq, \$ne, \$lt, \$lte, \$gt, \$gte, \$in, \$nin, \$contains, \$and, \$or, \$not"
    for given, message in (
        ({"year": {"$gtee": 1}}, rf"where.year: unknown operator '\$gtee', {names}"),
        ({"year": {"gte": 1}}, "where.year: unknown operator 'gte'"),
        ({"year": {}}, "where.year: unknown operator ''"),
        ({"$nor": []}, r"where.\$nor: unknown operator '\$nor'"),
        ({"year": {"$in": 3}}, "'year': 3 after 'in', expected a list"),
        ({"year": {"$gte": None}}, "'year': None after '>=', expected a number, text or date"),
        ({"year": {"$gte": [1]}}, r"Between got \[1\]"),
        ({"$or": {}}, r"\$or in a filter is dict: expected a list of filters"),
        ({"year": [1]}, r"where.year is a list: expected a value, or operators such as \$in and \$contains"),
        ({"$not": 3}, "the filter 3 is int: expected an object"),
        (deep, "nested more than 20 levels"),
        ({"": 1}, "metadata key ''"),
        ({3: 1}, "metadata key 3: expected a str"),
    ):
        with pytest.raises(UsageError, match=message):
            filter_of(given)
    operators = "with one of =, !=, <, <=, >, >=, in, not in, contains, such as 'year >= 2021'"
    for written in ("year", "year ~ 2021", "year => 2021", "year === 3", "= 3", "kind like x", ""):
        with pytest.raises(UsageError, match=f"the condition '{written}' has no known operator: .* {operators}"):
            filter_of_condition(written)
    for written, message in (
        ('{"a": 1', "is not JSON: .*column 8"),
        ("x=1e999", "'x' is inf: expected a finite number"),
    ):
        with pytest.raises(UsageError, match=message):
            filter_of_condition(written)


def test_rejects_parts_that_are_not_filters() -> None:
    part = Equal("number", 1)
    for make, message in (
        (lambda: And(part), "expected several filters"),
        (lambda: Or("number"), "expected several filters"),
        (lambda: Not((part,)), r"where=\(Equal.*: expected a filter"),
        (lambda: And(({"number": 1},)), "where={'number': 1}: expected a filter"),
        (lambda: OneOf("tree", "ash"), r"OneOf\('tree', 'ash'\): expected several values; use Equal for one"),
    ):
        with pytest.raises(UsageError, match=message):
            make()
    some = Or(part for _ in range(3))
    assert some == Or((part,) * 3) and hash(some)


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("number", [0, -1, 2.5, "5", True, None])
def test_rejects_numbers_that_are_no_counts(store: VectorStore, number: Any) -> None:
    store.add(records(3))
    with pytest.raises(UsageError, match=rf"k={number!r}: expected an int of at least 1"):
        store.search(vector_of("query"), IDENTITY, k=number)
    with pytest.raises(UsageError, match=rf"batch_size={number!r}: expected an int of at least 1"):
        store.switch(IDENTITY, embed, batch_size=number)
    with pytest.raises(UsageError, match=rf"dimensions={number!r}: expected an int of at least 1"):
        replace(IDENTITY, dimensions=number)
    assert len(store.search(vector_of("query"), IDENTITY, k=9)) == 3 and store.verify() == []


def test_integers_of_numpy_are_counts(store: VectorStore) -> None:
    store.add(records(3))
    identity = replace(IDENTITY, dimensions=np.int64(IDENTITY.dimensions), model_hash="1" * 64)
    store.switch(identity, embed, batch_size=np.int32(2))
    assert store.identity == identity and len(store.search(vector_of("query"), identity, k=np.uint8(2))) == 2


def test_parts_of_the_same_kind_are_joined_and_deep_nesting_is_refused(tmp_path: Path) -> None:
    part, other = Equal("number", 1), Equal("number", 2)
    assert Or((part, Or((other, And((part,)))), part)) == Or((part, other, And((part,)), part))
    assert And((And((part, other)), And(()))) == And((part, other))
    with pytest.raises(UsageError, match="the filter is nested 21 levels deep: expected at most 20 And, Or and Not"):
        Not(nested(part, 20))
    with VectorStore.create(tmp_path / "store", IDENTITY) as store, store.snapshot() as snapshot:
        snapshot.connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 10)
        with pytest.raises(UsageError, match=r"the filter is too large for SQLite .*: nest fewer And, Or and Not"):
            snapshot.numbers(nested(part, 20))


def test_filter_of_too_many_conditions_is_refused(tmp_path: Path) -> None:
    with VectorStore.create(tmp_path / "store", IDENTITY) as store, store.snapshot() as snapshot:
        number = snapshot.connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        snapshot.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 100)
        with pytest.raises(UsageError, match="the filter has 102 keys and values, expected at most 100: join"):
            snapshot.numbers(And(tuple(Not(Equal("number", n)) for n in range(34))))
        assert not len(snapshot.numbers(Or(tuple(Equal("number", n) for n in range(34)))))  # are joined
        snapshot.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, number)


def test_rejects_filters_on_what_no_record_can_have() -> None:
    for value, message in ((10**400, "an int of 1330 bits"), (10**5000, "64 bits"), ("a\ud800", "lone surrogate")):
        for make_filter in (Equal, lambda key, value: OneOf(key, (1, value))):
            with pytest.raises(UsageError, match=f"metadata 'k' .*{message}"):
                make_filter("k", value)
    for make_filter in (lambda key: Equal(key, 1), lambda key: OneOf(key, ()), Between):
        with pytest.raises(UsageError, match="has a lone surrogate at character 0"):
            make_filter("\udfff")


def test_rejected_change_has_no_effect(store: VectorStore) -> None:
    store.add(records(5))
    for change, wrong in [
        (store.add, [*records(1200, first=10), record(2)]),
        (store.add, [record(8), record(8)]),
        (store.upsert, [record(8), record(8)]),
        (store.add, [record(8), replace(record(9), vector=np.ones(3))]),
        (store.upsert, [record(1, "new"), replace(record(9), vector=np.full(DIMENSIONS, np.nan))]),
        (store.upsert, [record(1, "new"), replace(record(9), metadata={"a": [[1]]})]),
    ]:
        with pytest.raises(UsageError):
            change(wrong)
        assert ids(list(store.records())) == ids(records(5)) and same(store.get(["r1"])[0], record(1))
    assert store.verify() == []


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector": np.zeros(DIMENSIONS)}, "is zero: cosine similarity needs a direction"),
        ({"vector": np.full(DIMENSIONS, np.inf)}, "not finite"),
        ({"vector": np.full(DIMENSIONS, 1e300)}, "not finite"),
        ({"vector": np.ones(DIMENSIONS + 1)}, r"shape \(22,\)"),
        ({"vector": np.array(["a"] * DIMENSIONS)}, "dtype <U1"),
        ({"id": ""}, "not empty"),
        ({"id": "a\0b"}, r"record id 'a\\x00b' has a NUL character: remove it"),
        ({"document_id": "\0"}, r"document_id '\\x00' has a NUL character"),
        ({"start": 1.5}, "record 'r1': start=1.5: expected an int of at most 64 bits"),
        ({"end": None}, "end=None: expected an int"),
        ({"end": 2**63}, "end=9223372036854775808: expected an int of at most 64 bits"),
        ({"text": None}, "of type str"),
        ({"text": "\ud800"}, "lone surrogate"),
        ({"metadata": {"": 1}}, "metadata key"),
        ({"metadata": {"a": float("nan")}}, "finite number"),
        ({"metadata": {"a": 2**63}}, "64 bits"),
        ({"metadata": {"a": -(10**400)}}, "metadata 'a' is an int of 1330 bits: expected an int of at most 64 bits"),
        ({"metadata": {"a": "x\udc00"}}, "metadata 'a' has a lone surrogate at character 1"),
        ({"metadata": {"\ud800": 1}}, "metadata key .* has a lone surrogate at character 0"),
        ({"metadata": {"a": b"x"}}, "is a bytes"),
    ],
)
def test_rejects_records_that_cannot_be_stored(store: VectorStore, change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        store.add([replace(record(1), **change)])


def test_changes_while_records_are_listed_are_kept(store: VectorStore) -> None:
    store.add(records(30))
    first, second = store.records(), store.records()
    assert next(first).id == "r0"
    store.upsert([record(40)])
    assert next(second).id == "r0" and next(first).id == "r1"
    first.close()
    second.close()
    assert store.count() == 31 and ids(store.get(["r40"])) == ["r40"]


def test_offsets_of_numpy_are_stored_as_ints(store: VectorStore) -> None:
    row = record(1)
    store.add([replace(row, start=np.int64(row.start), end=np.uint8(row.end))])
    assert store.verify() == [] and same(store.get(["r1"])[0], row)
    assert type(store.get(["r1"])[0].start) is int


def test_rejects_ids_that_no_record_can_have(store: VectorStore) -> None:
    store.add([replace(record(number), id=id) for number, id in enumerate("abc")])
    for call in (store.get, store.delete):
        with pytest.raises(UsageError, match=r"ids='abc': expected several ids; pass \['abc'\] for one"):
            call("abc")
        with pytest.raises(UsageError, match=r"id 7: expected a str"):
            call(["a", 7])
        with pytest.raises(UsageError, match="has a NUL character"):
            call(["a\0b"])
        with pytest.raises(UsageError, match="has a lone surrogate"):
            call(["a\ud800"])
    with pytest.raises(UsageError, match="document_ids='abc': expected several ids"):
        InDocument("abc")
    assert ids(list(store.records())) == ["a", "b", "c"]


def test_rejects_queries_that_do_not_fit(store: VectorStore) -> None:
    store.add(records(3))
    query = vector_of("query")
    for identity, message in [
        (replace(IDENTITY, model_hash="other"), "the files of 'a-model' have changed"),
        (replace(IDENTITY, query_prompt=""), "query_prompt 'query: ' in the store"),
        (replace(IDENTITY, precision="int8"), "precision"),
        (replace(IDENTITY, pooling="cls", document_prompt="x"), "document_prompt .*; pooling"),
    ]:
        with pytest.raises(UsageError, match=message):
            store.search(query, identity)
    assert store.search(query, replace(IDENTITY, model_name="/elsewhere"))
    for wrong, message in [
        (query[:-1], "shape"),
        (query * 0, "zero"),
        (query * np.nan, "finite"),
        (query[None], "shape"),
    ]:
        with pytest.raises(UsageError, match=message):
            store.search(wrong, IDENTITY)
    for k in (0, -1, 2.0, True):
        with pytest.raises(UsageError, match="k="):
            store.search(query, IDENTITY, k=k)
    with pytest.raises(UsageError, match="expected a filter"):
        store.search(query, IDENTITY, where={"tree": "oak"})


def test_empty_store_and_large_k(store: VectorStore) -> None:
    query = vector_of("query")
    assert store.search(query, IDENTITY) == [] and store.count() == 0 and list(store.records()) == []
    assert store.search_many(np.empty((0, DIMENSIONS)), IDENTITY) == []
    store.add([])
    store.add(records(3))
    assert len(store.search(query, IDENTITY, k=10**12)) == 3


def test_report_counts(store: VectorStore) -> None:
    store.add(records(30))
    report = SearchReport()
    store.search(vector_of("query"), IDENTITY, where=Equal("even", True), report=report)
    store.search_many(np.stack([vector_of("a"), vector_of("b")]), IDENTITY, report=report)
    assert report.num_queries == 3 and report.num_searched == 15 + 60


def test_compaction_does_not_change_results(store: VectorStore) -> None:
    rows = records(60)
    store.add(rows)
    store.delete([row.id for row in rows[:25]])
    store.compact()
    assert store.count() == 35 and all(map(same, store.records(), rows[25:]))
    store.add(rows[:3])
    query = vector_of("query")
    assert ids(store.search(query, IDENTITY, k=9)) == expected_ids([*rows[25:], *rows[:3]], query, 9)
    assert store.verify() == []


def test_switch_to_another_model(store: VectorStore) -> None:
    rows = records(40)
    store.add(rows)
    store.delete(["r7"])
    identity = replace(IDENTITY, model_hash="another", dimensions=13)
    store.switch(identity, lambda texts: np.stack([vector_of(text, 13) for text in texts]), batch_size=16)
    assert store.identity == identity and store.count() == 39
    expected = [replace(row, vector=vector_of(row.text, 13)) for row in rows if row.id != "r7"]
    assert all(map(same, store.records(), expected))
    query = vector_of("query", 13)
    assert ids(store.search(query, identity, k=6)) == expected_ids(expected, query, 6)
    with pytest.raises(UsageError, match="the files of 'a-model' have changed; dimensions 13 in the store, 21 now"):
        store.search(vector_of("query"), IDENTITY)
    with pytest.raises(UsageError, match="returned 1 vectors for"):
        store.switch(IDENTITY, lambda texts: np.ones((1, DIMENSIONS)))
    assert store.identity == identity and store.verify() == []


def test_export_holds_every_record_and_fills_another_store(make: Make, store: VectorStore, tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    assert export_parquet(store, file) == 0 and list(read_records(file)) == []
    rows = [*records(70), replace(record(70, '"é\n', none=None), lines=(np.int64(3), 4))]
    store.add(rows)
    assert export_parquet(store, file) == 71 and all(map(same, read_records(file), rows))
    assert read_identity(file) == IDENTITY and read_identity(file).model_name == "a-model"
    assert pq.read_schema(file).names == ["id", "text", "vector", "document_id", "start", "end", "metadata", "lines"]
    with make(tmp_path / "other", IDENTITY) as other:
        other.add(read_records(file))
        assert all(map(same, other.records(), rows))
    assert export_parquet(store, file, Equal("tree", "oak")) == 4
    with pytest.raises(UsageError, match="does not exist; create it first"):
        export_parquet(store, tmp_path / "absent" / "records.parquet")


def test_parquet_without_records_raises(tmp_path: Path) -> None:
    file = tmp_path / "texts.parquet"
    identity = json.dumps(asdict(IDENTITY))
    for table in (pa.table({"text": ["a"]}), pa.table({"text": ["a"]}).replace_schema_metadata({"bertkit": identity})):
        pq.write_table(table, file)
        check_no_records(file)


def check_no_records(file: Path) -> None:
    for read in (read_identity, lambda path: next(read_records(path))):
        with pytest.raises(DataError, match="holds no records"):
            read(file)


def test_repair_leaves_what_is_not_damaged(store: VectorStore) -> None:
    store.add(records(20))
    report = store.repair(embed)
    assert report.embedded_again == [] and report.removed == []
    assert all(map(same, store.records(), records(20)))


def test_floats_without_a_short_decimal_come_back_as_floats(store: VectorStore) -> None:
    values = (1e16, -1e16, 1e20, 1.5e300, -0.0, 5e-324, 123456.75)
    rows = [record(number, value=value) for number, value in enumerate(values)]
    store.add(rows)
    assert all(map(same, store.records(), rows))
    assert all(type(row.metadata["value"]) is float for row in store.records())
    assert store.count(Equal("value", 1e20)) == store.count(Equal("value", 0)) == 1
    assert store.verify() == [] and store.repair(embed).removed == []
    assert store.count() == len(rows)
