"""Incremental indexing: embed only what changed, and remove what is not wanted."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from bertkit.documents.document import Document
from bertkit.documents.passages import PassageOptions, cut_passages
from bertkit.documents.readers import read_documents
from bertkit.documents.sources import FileOptions
from bertkit.errors import UsageError
from bertkit.search.passage_records import PassageRecords, without_zeros
from bertkit.search.planning import IndexReport, Job, plan, plan_removal
from bertkit.search.records import Record
from bertkit.search.source_table import passage_ids, remove_source, store_source, stored_sources
from bertkit.search.store.record_rows import batches_of
from bertkit.search.store.schema import COLUMNS
from bertkit.search.store.vector_store import VectorStore

if TYPE_CHECKING:
    from bertkit.search.encoder import Encoder

_PASSAGES_AT_ONCE = 1024
"""Number of passages embedded and committed together, the most that an interruption loses."""
_SOURCES_AT_ONCE = 1024

_LOG = logging.getLogger("bertkit.search")

Finisher = Callable[[sqlite3.Connection], None]


def update(
    store: VectorStore,
    encoder: Encoder,
    paths: Iterable[str | Path],
    options: PassageOptions,
    column: str | None,
    files: FileOptions,
    report: IndexReport,
    progress: bool | None,
) -> None:
    """Bring the store up to date with files. Work finished before an interruption is kept."""
    with store.transaction() as connection:  # sees the changes of a transaction in progress
        jobs, touched = plan(connection, paths, options, column, files, report)
        for job in touched:
            store_source(connection, job.source, job.content, job.options)
        for name in report.removed:
            _forget(store, connection, name)
    writer = _Writer(store, encoder, options, report)
    total = sum(job.source.size for job in jobs)
    hidden = None if progress is None else not progress
    with tqdm(total=total, desc="indexing", unit="B", unit_scale=True, delay=2, disable=hidden, leave=False) as bar:
        for job in jobs:
            before = bar.n
            writer.start(lambda connection, job=job: store_source(connection, job.source, "", job.options))
            seen = _Ids()
            num_passages = report.num_passages
            read, num_skipped, is_read = 0, len(report.skipped), False  # characters, at most the bytes
            for document in read_documents(job.source, job.column or None, report.skipped):
                writer.add(job.source.name, document, job.same, seen)
                is_read = True
                read = min(read + len(document.text), job.source.size)
                bar.update(before + read - bar.n)
            is_whole = _is_whole(job, report, num_skipped, is_read)
            _LOG.info("%s: %s passages", job.source.name, f"{report.num_passages - num_passages:,}")
            writer.finish(_finisher(store, job, seen, is_whole))
            bar.update(before + job.source.size - bar.n)
        writer.flush()


def preview(jobs: Iterable[Job], options: PassageOptions, report: IndexReport) -> None:
    """Read planned files, and report the number of their passages and what would be skipped."""
    for job in jobs:
        num_skipped, is_read = len(report.skipped), False
        for document in read_documents(job.source, job.column or None, report.skipped):
            is_read = True
            report.num_passages += sum(1 for _ in cut_passages(document, options))
        _is_whole(job, report, num_skipped, is_read)


def _is_whole(job: Job, report: IndexReport, num_skipped: int, is_read: bool) -> bool:
    """Whether a file was completely read; a new file that was not is no longer reported as new."""
    skipped = report.skipped[num_skipped:]
    is_whole = not skipped or (is_read and all(one.is_part for one in skipped))
    if not is_whole and job.source.name in report.new:
        report.new.remove(job.source.name)
    return is_whole


def add_documents(
    store: VectorStore, encoder: Encoder, documents: Sequence[Document], options: PassageOptions, report: IndexReport
) -> None:
    """Add documents, replacing those with the same ids. Passages already in the store are not embedded again.

    Raises:
        UsageError: an id that is the name of a file of the index.
    """
    with store.snapshot() as snapshot:
        _check_ids(snapshot.connection, [document.id for document in documents])
    writer = _Writer(store, encoder, options, report)
    for batch in batches_of(documents):
        seen = _Ids()
        for document in batch:
            writer.add(document.id, document, document.id, seen)
        writer.finish(_finisher_of_documents(store, [document.id for document in batch], seen))
    writer.flush()


def remove(store: VectorStore, names: Iterable[str | Path], report: IndexReport) -> None:
    """Remove what `plan_removal` reports, as one commit."""
    with store.transaction() as connection:
        plan_removal(connection, names, report)
        for name in report.removed:
            _forget(store, connection, name)


def last_passages(store: VectorStore) -> PassageOptions:
    """How the files of the last run were split; the defaults without any."""
    with store.snapshot() as snapshot:
        row = snapshot.connection.execute("SELECT options FROM source ORDER BY rowid DESC LIMIT 1").fetchone()
    return PassageOptions(*map(int, row[0].split(" ", 2)[:2])) if row else PassageOptions()


class _Ids:
    """Ids of passages, as eight bytes each: a file of a gigabyte has more than a million."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, id: str) -> None:
        self._hashes.append(_hash(id))

    def lacking(self, ids: Iterable[str]) -> list[str]:
        """Those of other ids that were not added."""
        added, lacking = np.sort(np.array(self._hashes, np.uint64)), []
        for part in batches_of(ids):
            hashes = np.array([_hash(id) for id in part], np.uint64)
            is_added = np.searchsorted(added, hashes, "right") > np.searchsorted(added, hashes, "left")
            lacking += [id for id, one in zip(part, is_added, strict=True) if not one]
        return lacking


def _hash(id: str) -> int:
    return int.from_bytes(hashlib.blake2b(id.encode("utf-8", "replace"), digest_size=8).digest())


class _Writer:
    """Collects passages; embeds and commits them in batches, together with finishers."""

    def __init__(self, store: VectorStore, encoder: Encoder, options: PassageOptions, report: IndexReport) -> None:
        self._store, self._encoder, self._report = store, encoder, report
        self._pending: list[tuple[Record, str]] = []  # without vector, and the id that the store may have it under
        self._finishers: list[Finisher] = []
        self._starter: Finisher | None = None
        self._passages = PassageRecords(options)

    def start(self, starter: Finisher) -> None:
        """Call a function in each commit that has only a part of the additions until `finish`."""
        self._starter = starter

    def add(self, of: str, document: Document, was: str, seen: _Ids) -> None:
        """Add the passages of a document, or of a part of one.

        Args:
            of: name of the document in ids; the same for all its parts, which are consecutive.
            was: a name under which the store may have the same passages.
            seen: receives the ids.
        """
        for record, suffix in self._passages.of(of, document):
            self._pending.append((record, was + suffix))
            seen.add(record.id)
            self._report.num_passages += 1
            if len(self._pending) >= _PASSAGES_AT_ONCE:
                self.flush()

    def finish(self, finisher: Finisher) -> None:
        """Call a function in the commit that completes the additions so far."""
        self._starter = None
        self._finishers.append(finisher)
        if len(self._finishers) >= _SOURCES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Embed new passages, and commit."""
        pending, finishers = self._pending, self._finishers
        if self._starter is not None:
            finishers.append(self._starter)
        self._pending, self._finishers = [], []
        if not pending and not finishers:
            return
        same = {record.id: record for record in self._store.get([old for _, old in pending])}
        reused = {
            record.id: same[old].vector for record, old in pending if old in same and same[old].text == record.text
        }
        texts = list(dict.fromkeys(record.text for record, _ in pending if record.id not in reused))
        from bertkit.inference import InferenceReport

        counts = InferenceReport()
        vectors = dict(zip(texts, self._encoder.embed_document(texts, counts) if texts else (), strict=True))
        self._report.num_embedded += len(texts)
        self._report.num_cut += counts.num_texts_cut
        embedded = (
            replace(record, vector=reused[record.id] if record.id in reused else np.asarray(vectors[record.text]))
            for record, _ in pending
        )
        records = list(without_zeros(embedded, self._encoder.identity, self._report.skipped))
        with self._store.transaction() as connection:
            stored = _contents(connection, [record.id for record in records])
            if changed := [record for record in records if stored.get(record.id) != _content(record)]:
                self._store.upsert(changed)
            for finisher in finishers:
                finisher(connection)


def _contents(connection: sqlite3.Connection, ids: list[str]) -> dict[str, tuple]:
    """All but the vectors of the records with these ids, as `_content` gives it."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM record WHERE id IN (SELECT value FROM json_each(?))", [json.dumps(ids)]
    )
    return {id: (*values, _comparable(json.loads(metadata))) for id, *values, metadata in rows}


def _content(record: Record) -> tuple:
    return record.document_id, record.start, record.end, *record.lines, record.text, _comparable(record.metadata)


def _comparable(metadata: Mapping[str, object]) -> str:
    return json.dumps(dict(metadata), sort_keys=True)  # 1, 1.0 and true differ


def _finisher(store: VectorStore, job: Job, seen: _Ids, is_whole: bool) -> Finisher:
    """Finisher of a file: removes its outdated passages, and stores its row; without passages only if it was completely
    read."""

    def finish(connection: sqlite3.Connection) -> None:
        for name in {job.was, job.source.name}:
            _delete(store, seen.lacking(passage_ids(connection, name)))
            remove_source(connection, name)
        if is_whole or any(passage_ids(connection, job.source.name)):
            store_source(connection, job.source, job.content if is_whole else "", job.options)

    return finish


def _finisher_of_documents(store: VectorStore, ids: list[str], seen: _Ids) -> Finisher:
    """Finisher of documents: removes their outdated passages."""

    def finish(connection: sqlite3.Connection) -> None:
        _check_ids(connection, ids)  # again, as another thread can have added the file
        _delete(store, seen.lacking(passage for id in ids for passage in passage_ids(connection, id)))

    return finish


def _check_ids(connection: sqlite3.Connection, ids: list[str]) -> None:
    if files := stored_sources(connection, ids):
        name = next(iter(files))
        raise UsageError(
            f"document {name!r} has the name of a file of the index: choose another id, or remove the file first with "
            f"Index.remove({name!r})"
        )


def _forget(store: VectorStore, connection: sqlite3.Connection, name: str) -> None:
    _delete(store, list(passage_ids(connection, name)))
    remove_source(connection, name)


def _delete(store: VectorStore, ids: Sequence[str]) -> None:
    if ids:
        store.delete(ids)
