"""Bulk embedding: an immutable plan, shards with markers, restarts that repeat nothing, workers on Ray."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bertkit.documents.passages import PassageOptions
from bertkit.errors import DataError, DependencyError, UsageError
from bertkit.files.whole_files import only_writer
from bertkit.search import bulk
from bertkit.search.bulk import BulkEmbedding
from bertkit.search.encoder import Encoder
from bertkit.search.index import Index

SHORT = PassageOptions(60, 0)
pytestmark = pytest.mark.filterwarnings("ignore::bertkit.errors.TruncationWarning")  # the model accepts 24 tokens


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path("docs")
    folder.mkdir()
    for number in range(7):
        lines = [f"File {number} has line {line} of many. It says: the same.\n\n" for line in range(3 * number)]
        (folder / f"{number}.txt").write_text("".join(lines))
    (folder / "rows.jsonl").write_text('{"text": "a row"}\n{"text": "another row"}\n{"no": 1}\n')
    (folder / "bad.txt").write_bytes(b"\xff\xfe")
    (folder / "image.png").write_bytes(b"")
    return folder


def rows_of(job: BulkEmbedding) -> list[tuple]:
    return [(one.id, one.text, one.document_id, one.start, one.end, dict(one.metadata)) for one in job.records()]


@pytest.mark.full
def test_shards_hold_the_rows_of_an_index(docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = BulkEmbedding.create("job", docs, Encoder.of(encoder), passages=SHORT, shard_bytes=400)
    assert job.pending() == list(range(len(job.pending()))) and len(job.pending()) > 3
    job.run()
    assert job.pending() == []
    assert [(one.path, one.why) for one in job.skipped()] == [
        ("docs/bad.txt", "no text in its 2 bytes"),
        ("docs/rows.jsonl", "docs/rows.jsonl, line 3 has no column 'text', it has no: choose one with --column"),
    ]
    with Index.open("direct", encoder) as direct, Index.open("bulk", encoder) as filled:
        direct.add(docs, passages=SHORT)
        expected = {record.id: record for record in direct.store.records()}
        records = list(job.records())
        assert {record.id for record in records} == expected.keys() and len(records) > 60
        for record in records:
            own = expected[record.id]
            assert (record.text, record.document_id, record.start) == (own.text, own.document_id, own.start)
            np.testing.assert_allclose(record.vector, own.vector, atol=1e-5)
        filled.store.add(job.records())
        report = filled.add(docs, passages=SHORT)  # the files become known, and nothing is embedded again
        assert report.num_embedded == 0 and report.num_passages == len(records)
        assert [one.id for one in filled.search("line 4 of many")] == [
            one.id for one in direct.search("line 4 of many")
        ]


@pytest.mark.full
def test_restart_repeats_no_finished_shard(docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = BulkEmbedding.create("job", docs, Encoder.of(encoder), passages=SHORT, shard_bytes=400)
    embed, texts, number = Encoder.embed_document, [], len(job.pending())

    def counted(self: Encoder, batch: list[str], report=None) -> np.ndarray:
        if len(texts) > 20 and "interrupted" not in texts:
            texts.append("interrupted")
            raise KeyboardInterrupt
        texts.extend(batch)
        return embed(self, batch, report)

    monkeypatch.setattr(Encoder, "embed_document", counted)
    with pytest.raises(KeyboardInterrupt):
        job.run()
    assert 0 < len(job.pending()) < number
    with pytest.raises(DataError, match=rf"{len(job.pending())} of {number} shards in job are not finished"):
        next(job.records())
    BulkEmbedding("job").run()
    texts.remove("interrupted")
    assert sorted(texts) == sorted(record.text for record in job.records())
    job.run()
    assert len(texts) == len(rows_of(job))
    assert not list(Path("job").glob(".*"))


@pytest.mark.full
def test_plan_is_not_changed(docs: Path, encoder: Path) -> None:
    opened = Encoder.of(encoder)
    job = BulkEmbedding.create("job", docs, opened, passages=SHORT, shard_bytes=400)
    plan = Path("job/plan.json").read_bytes()
    with pytest.raises(UsageError, match="holds a plan"):
        BulkEmbedding.create("job", docs, opened)
    with only_writer(Path("another")), pytest.raises(UsageError, match="another is being written by another process"):
        BulkEmbedding.create("another", docs, opened)
    (docs / "3.txt").write_text("other")
    with pytest.raises(DataError, match=r"3\.txt has changed since the plan was made"):
        job.run()
    (docs / "3.txt").unlink()
    with pytest.raises(DataError, match=r"3\.txt has changed since the plan was made"):
        job.run()
    assert Path("job/plan.json").read_bytes() == plan
    changed = json.loads(plan)
    changed["identity"]["model_hash"] = "other"
    Path("job/plan.json").write_text(json.dumps(changed))
    with pytest.raises(UsageError, match=r"the files of '.*' have changed"):
        BulkEmbedding("job").run()


def test_bad_jobs_raise(docs: Path, encoder: Path) -> None:
    with pytest.raises(DataError, match="create the job first"):
        BulkEmbedding("absent")
    Path("empty").mkdir()
    with pytest.raises(DataError, match="no files to embed; 0 were skipped"):
        BulkEmbedding.create("job", "empty", Encoder.of(encoder))
    Path("empty/x.png").touch()
    with pytest.raises(
        DataError, match=r"no files to embed; 1 were skipped, such as empty/x\.png: empty, and of unknown extension"
    ):
        BulkEmbedding.create("job", "empty", Encoder.of(encoder))
    job = BulkEmbedding.create("job", docs / "rows.jsonl", Encoder.of(encoder))
    job.run()
    (shard,) = Path("job").glob("shard-00000.*.parquet")
    with shard.open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"is damaged: delete job/shard-00000\.done\.json"):
        next(job.records())
    shard.unlink()
    with pytest.raises(DataError, match=r"is damaged: delete job/shard-00000\.done\.json"):
        next(job.records())
    plans = {
        '{"format": 3}': "plan.json has format 3, expected 2: update bertkit",
        '{"format": 1}': "plan.json was not made by this version of bertkit: plan the job again in a new folder",
        '{"format": 0}': "plan.json was not made by this version of bertkit: plan the job again in a new folder",
        '{"format": "1"}': "plan.json was not made by this version",
        '{"format": 2}': "not a plan",
        "{}": "not a plan",
    }
    for content, message in (plans | {"[]": "not a plan"}).items():
        Path("job/plan.json").write_text(content)
        with pytest.raises(DataError, match=message):
            BulkEmbedding("job")


def test_folder_whose_name_is_not_utf8(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9") / "docs"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("One text.")
    monkeypatch.chdir(folder.parent)
    job = BulkEmbedding.create(tmp_path / "job", "docs", Encoder.of(encoder))
    job.run()
    assert [(one.text, one.document_id) for one in job.records()] == [("One text.", "docs/a.txt")]


def test_two_writers_of_a_shard_leave_a_file_that_matches_its_marker(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process, whose vectors differ in their last bits, replaces the file at the worst moment and dies."""
    opened = Encoder.of(encoder)
    job = BulkEmbedding.create("job", docs / "3.txt", opened, passages=SHORT)
    embed, sha256 = Encoder.embed_document, bulk.content_of

    def died(path: Path) -> str:
        monkeypatch.setattr(bulk, "content_of", sha256)
        checksum = sha256(path)
        with monkeypatch.context() as patch:
            patch.setattr(Encoder, "embed_document", lambda *arguments: embed(*arguments) * np.float32(0.999999))
            patch.setattr(bulk.BulkEmbedding, "_marker", lambda self, number: Path("job/marker-of-the-other"))
            job.run_shard(0, opened)
        return checksum

    monkeypatch.setattr(bulk, "content_of", died)
    job.run()
    assert len(list(Path("job").glob("shard-00000.*.parquet"))) == 2
    texts = [record.text for record in job.records()]
    np.testing.assert_array_equal([record.vector for record in job.records()], embed(opened, texts))


def test_shard_with_a_pdf_waits_for_a_worker_with_pypdf(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "page.pdf").write_bytes(b"%PDF-1.4 damaged")
    job = BulkEmbedding.create("job", docs / "page.pdf", Encoder.of(encoder))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pypdf", None)  # import fails
        with pytest.raises(DependencyError, match="pdf needs pypdf"):
            job.run()
    assert job.pending() == [0]
    pytest.importorskip("pypdf")
    job.run()
    assert job.pending() == [] and "cannot be read as pdf" in job.skipped()[0].why


@pytest.mark.slow
def test_ray_gives_the_same_rows_after_two_kills(docs: Path, encoder: Path) -> None:
    """Two workers of a local Ray; each time some shards are finished, one of them is killed."""
    ray = pytest.importorskip("ray")
    from bertkit.integrations.ray import run_on_ray

    for number in range(12):
        lines = [f"Line {line} of file {number} is here. " for line in range(15_000)]
        (docs / f"long{number}.txt").write_text("\n".join(lines))
    opened = Encoder.of(encoder)
    one, many = (BulkEmbedding.create(name, docs, opened, shard_bytes=1) for name in ("one", "many"))
    one.run()
    number, killed = len(many.pending()), []

    def kill() -> None:
        for left in (number - 8, number - 11):
            while len(many.pending()) > left:
                time.sleep(0.01)
            workers = [
                int(folder.name)
                for folder in Path("/proc").glob("[0-9]*")
                if b"ray::" in _command(folder) and b"_Worker" in _command(folder)
            ]
            if workers:
                os.kill(workers[0], signal.SIGKILL)
                killed.append(workers[0])

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    killer = threading.Thread(target=kill, daemon=True)
    try:
        killer.start()
        run_on_ray("many", num_workers=2, device="cpu")
        killer.join(60)
    finally:
        ray.shutdown()
    assert len(killed) == 2
    assert many.pending() == [] and rows_of(many) == rows_of(one)
    for record, other in zip(many.records(), one.records(), strict=True):
        np.testing.assert_allclose(record.vector, other.vector, atol=1e-5)


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
