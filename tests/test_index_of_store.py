"""The tables of an index: records added by a store opened without its words, and reads that scan no table."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from search_stores import IDENTITY, vector_of

import bertkit
from bertkit.search import Equal, InDocument, Record, VectorStore, read_identity, read_records
from bertkit.search.index import Index
from bertkit.search.lexical import LexicalIndex
from bertkit.search.store import database
from bertkit.search.words import Split

TEXTS = ["the cat sat", "a dog ran", "the bird sang", "a fish swam", "the cat ran"]


def test_store_filled_from_parquet_is_searched_by_words(tmp_path: Path, encoder: Path) -> None:
    documents = [bertkit.Document(f"d{row}", text, metadata={"row": row}) for row, text in enumerate(TEXTS)]

    def found(index: Index) -> list[list[tuple[str, float]]]:
        asked = [("cat ran", None), ("the cat", Equal("row", 4)), ("a fish", InDocument(("d0", "d3")))]
        return [
            [(one.document_id, round(one.score, 5)) for one in index.search(query, mode=mode, where=where)]
            for query, where in asked
            for mode in ("lexical", "hybrid")
        ]

    file, folder = tmp_path / "records.parquet", tmp_path / "copy"
    with Index.open(tmp_path / "first", encoder) as index:
        index.add(documents)
        index.export(file)
        expected = found(index)
    rows = list(read_records(file))
    with VectorStore.create(folder, read_identity(file)) as store:
        store.add(rows[:3])
    with Index.open(folder) as index:
        assert [one.document_id for one in index.search("sang", mode="lexical")] == ["d2"]
    with VectorStore.open(folder) as store:  # again without words
        store.add(rows[3:])
    with Index.open(folder) as index:
        assert found(index) == expected and index.store.verify() == []


def test_filter_holds_where_texts_are_not_indexed(tmp_path: Path) -> None:
    index = LexicalIndex(tmp_path, splits=lambda text, language: Split(text.split(), [], []))
    for number, text_index in enumerate((index, None, index, None)):
        opened = VectorStore.open if number else VectorStore.create
        arguments = (tmp_path, text_index) if number else (tmp_path, IDENTITY, text_index)
        with opened(*arguments) as store:
            store.add([Record(f"r{number}", "the cat", vector_of("a"), f"d{number}")])
    with VectorStore.open(tmp_path, index) as store, store.snapshot() as snapshot:
        for where, expected in [(("d1",), []), (("d3", "d0"), [1]), (("d2", "d1"), [3])]:
            numbers, _ = index.search(snapshot, "cat", 10, InDocument(where))
            np.testing.assert_array_equal(numbers, expected)


def test_no_search_or_small_change_scans_a_table(
    tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    connect = database._connect

    def traced(uri: str) -> sqlite3.Connection:
        connection = connect(uri)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(database, "_connect", traced)
    with Index.open(tmp_path, encoder) as index:
        index.add([bertkit.Document(f"d{row}", text, metadata={"row": row}) for row, text in enumerate(TEXTS * 9)])
        statements.clear()
        for mode in ("dense", "lexical", "hybrid"):
            results = index.search("the cat", mode=mode)
            index.search("the cat", mode=mode, where=Equal("row", 4))
        assert results[0].other_documents
        record = next(index.store.records(InDocument(["d3"])))
        index.store.upsert([record])
        index.store.delete([record.id])
    plans = {}
    connection = sqlite3.connect(tmp_path / database.INDEX_FILE)
    for statement in statements:
        if statement.startswith(("SELECT", "INSERT", "DELETE", "UPDATE")):
            plan = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            plans[statement] = [step for step in plan if step.startswith("SCAN") and "json_each" not in step]
    connection.close()
    scans = {statement: steps for statement, steps in plans.items() if steps}
    assert len(plans) > 10 and {step for steps in scans.values() for step in steps} <= {"SCAN state"}, scans
