"""Index: embedding of changed files, search in three modes, prompts, answers, commands, errors."""

import json
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from random_models import our_model

import bertkit
from bertkit.checkpoint import SentenceSettings
from bertkit.checkpoint.trained_task import TrainedTask
from bertkit.cli import run
from bertkit.documents.passages import PassageOptions
from bertkit.documents.readers.reading import Reading
from bertkit.errors import CheckpointError, DataError, MissingHeadError, StoreError, UsageError
from bertkit.search import (
    And,
    Between,
    Contains,
    Equal,
    InDocument,
    Not,
    Or,
    Record,
    VectorStore,
    read_records,
)
from bertkit.search.bulk import BulkEmbedding
from bertkit.search.encoder import Encoder
from bertkit.search.index import Index
from bertkit.search.prompts import Prompts, prompts_of
from bertkit.tasks import QuestionAnswering, SequenceClassification
from bertkit.tokenizer.layout import Layout

SHORT = PassageOptions(60, 0)


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path("docs")
    folder.mkdir()
    (folder / "cats.txt").write_text("The cat sat on the mat. It was a warm day.\n\nA zebra came by later.\n")
    (folder / "fish.md").write_text("# Fish\n\nFish swim in the sea. They are quiet.\n")
    (folder / "rows.jsonl").write_text('{"text": "Rain fell."}\n{"text": "Snow fell."}\n')
    return folder


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are embedded as documents, from now on."""
    texts: list[str] = []
    original = Encoder.embed_document

    def recorded(self: Encoder, given: list[str], report=None) -> np.ndarray:
        texts.extend(given)
        return original(self, given, report)

    monkeypatch.setattr(Encoder, "embed_document", recorded)
    return texts


def passages(index: Index) -> set[tuple[str, int, int, str]]:
    return {(one.document_id, one.start, one.end, one.text) for one in index.store.records()}


def test_only_what_changed_is_embedded(docs: Path, encoder: Path, embedded: list[str], tmp_path: Path) -> None:
    with Index.open("store", encoder) as index:
        report = index.add(docs, passages=SHORT)
        assert report.new == ["docs/cats.txt", "docs/fish.md", "docs/rows.jsonl"]
        assert report.num_embedded == len(embedded) == len(index) == 5
        embedded.clear()
        assert index.add(docs, passages=SHORT).num_unchanged == 3 and not embedded

        (docs / "cats.txt").write_text("A new start. " + (docs / "cats.txt").read_text())
        (docs / "fish.md").rename(docs / "sea.md")
        (docs / "rows.jsonl").unlink()
        (docs / "new.txt").write_text("Bread is baked at night.")
        before = passages(index)
        planned = index.add(docs, passages=SHORT, dry_run=True)
        assert passages(index) == before and not embedded
        report = index.add(docs, passages=SHORT)
        for one in (planned, report):
            assert (one.new, one.changed, one.removed) == (["docs/new.txt"], ["docs/cats.txt"], ["docs/rows.jsonl"])
            assert one.renamed == [("docs/fish.md", "docs/sea.md")]
        assert "Fish swim" not in " ".join(embedded) and "A zebra came by later." not in embedded
        embedded.clear()
        (docs / "new.txt").touch()
        assert index.add(docs, passages=SHORT).num_unchanged == 3 and not embedded
        assert index.add(docs, passages=PassageOptions(61, 0)).changed and not embedded
        updated = passages(index)
        for document, start, end, text in updated:
            assert text.endswith(Path(document).read_text()[start:end])
    with Index.open("fresh", encoder) as fresh:
        fresh.add(docs, passages=SHORT)
        assert passages(fresh) == updated


def test_later_runs_split_as_the_last_one(docs: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["index", str(docs), "--store", "store", "--model", str(encoder), "--passage-length", "60", "--overlap", "9"])
    capsys.readouterr()
    assert run(["index", str(docs), "--store", "store"]) == 0
    assert "0 new, 0 changed" in capsys.readouterr().err
    assert run(["index", str(docs), "--store", "store", "--overlap", "0"]) == 0
    assert "0 changed" not in capsys.readouterr().err
    with Index.open("store") as index:
        assert not index.add(docs, passages=SHORT).changed and not index.add(docs).changed
    assert run(["index", str(docs), "--store", "store", "--overlap", "60"]) == 2
    assert "overlap 60: expected at least 0 and less than the length 60" in capsys.readouterr().err


def test_a_moved_model_is_found_again(docs: Path, encoder: Path, tmp_path: Path, embedded: list[str]) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(encoder, before)
    with Index.open("store", before) as index:
        index.add("docs", passages=SHORT)
    before.rename(after)
    with (
        Index.open("store") as index,
        pytest.raises(CheckpointError, match=r"no model '.*before'.*if it was moved: bertkit index FILES --model"),
    ):
        index.search("cat")
    embedded.clear()
    for name in (after, encoder):  # a copy elsewhere changes nothing as long as the model is there
        with Index.open("store", name) as index:
            index.add("docs", passages=SHORT)
        with Index.open("store") as index:
            assert index.store.identity.model_name == str(after) and index.search("cat")
    assert not embedded


def test_a_moved_folder_is_renamed(docs: Path, encoder: Path, embedded: list[str]) -> None:
    shutil.copy(docs / "cats.txt", docs / "copy.txt")
    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        embedded.clear()
        shutil.copytree(docs, "other")
        shutil.move("other", "copied")
        docs.rename("moved")
        names = ("cats.txt", "copy.txt", "fish.md", "rows.jsonl")
        report = index.add("moved", passages=SHORT)
        assert report.renamed == [(f"docs/{name}", f"moved/{name}") for name in names]
        assert not embedded and {document.partition("/")[0] for document, *_ in passages(index)} == {"moved"}
        assert index.add("copied", passages=SHORT).new  # the others still exist
        num_passages = len(index)
        shutil.rmtree("moved")
        with pytest.raises(DataError, match="moved: no such file or folder"):  # it may be on a disk that is not mounted
            index.add("moved", passages=SHORT)
        assert len(index) == num_passages


def test_path_that_is_gone_is_reported_and_the_others_are_updated(
    docs: Path, encoder: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(docs, "more")
    Path("single.txt").write_text("One file.")
    paths = ["docs", "more", "single.txt"]
    with Index.open("store", encoder) as index:
        index.add(paths, passages=SHORT)
        embedded.clear()
        shutil.rmtree("docs")
        Path("single.txt").unlink()
        (Path("more") / "new.txt").write_text("Bread is baked at night.")
        expected = ["docs/cats.txt", "docs/fish.md", "docs/rows.jsonl", "single.txt"]
        for is_planned in (True, False):
            report = index.add([*paths, "never"], passages=SHORT, dry_run=is_planned)
            assert report.removed == expected and report.new == ["more/new.txt"] and report.num_unchanged == 3
            why = "no such file or folder"
            assert [(one.path, one.why) for one in report.skipped] == [
                ("docs", why), ("single.txt", why), ("never", why),
            ]  # fmt: skip
        assert embedded == ["Bread is baked at night."]
        assert {document.partition("/")[0] for document, *_ in passages(index)} == {"more"}
    for number in range(20):
        (Path("more") / f"{number}.xyz").touch()
    assert run(["index", *paths, "--store", "store"]) == 0  # the next night, when the store no longer has them
    listed = capsys.readouterr().err.splitlines()
    assert "0 new, 0 changed, 0 renamed, 0 removed, 4 unchanged files" in listed[0]
    assert listed[2:4] == [f"skipped {path}: {why}" for path in ("docs", "single.txt")]


def test_path_that_is_gone_keeps_files_that_exist_under_it_elsewhere(docs: Path, encoder: Path) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere", "one.txt").write_text("One file.")
    with Index.open(Path("store").absolute(), encoder) as index:
        index.add("docs", passages=SHORT)
        before = passages(index)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir("elsewhere")
            report = index.add(["docs", "one.txt"], passages=SHORT)
        assert not report.removed and before < passages(index)


def test_path_that_cannot_be_read_is_reported_and_keeps_its_passages(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("single.txt").write_text("One file.")
    stat = os.stat

    def refused(path: Any, **options: Any) -> os.stat_result:
        if path == docs:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        before = passages(index)
        monkeypatch.setattr(os, "stat", refused)
        report = index.add([docs, "single.txt"], passages=SHORT)
        assert [(one.path, one.why) for one in report.skipped] == [("docs", "Permission denied")]
        assert not report.removed and before < passages(index)


def test_interrupted_run_resumes(
    docs: Path, encoder: Path, embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.search.updating._PASSAGES_AT_ONCE", 2)
    with Index.open("store", encoder) as index:
        _interrupt_second_commit(index, docs, monkeypatch)
        assert len(index) == 2 and len(embedded) == 2
        done = set(embedded)
        index.add(docs, passages=SHORT)
        assert len(index) == 5 and len(embedded) == 5 and len(set(embedded)) == 5 and done < set(embedded)


def test_unreadable_files_are_tried_again_and_lose_their_passages(docs: Path, encoder: Path) -> None:
    with Index.open("store", encoder) as index:
        (docs / "bad.txt").write_bytes(b"\0")
        index.add(docs, passages=SHORT)
        (docs / "cats.txt").write_bytes(b"\0")
        report = index.add(docs, passages=SHORT)
        assert sorted(one.path for one in report.skipped) == ["docs/bad.txt", "docs/cats.txt"]
        assert report.new == [] and len(index) == 3
        (docs / "bad.txt").write_text("Good now.")
        assert index.add(docs, passages=SHORT).new == ["docs/bad.txt"] and len(index) == 4


def fail_after_first_part(patch: pytest.MonkeyPatch) -> None:
    read = Reading.text_parts

    def failing(reading: Reading) -> Iterator[tuple[int, str]]:
        yield next(read(reading))
        raise OSError(5, "Input/output error")

    patch.setattr(Reading, "text_parts", failing)


def test_file_that_fails_after_its_first_part_is_tried_again(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.documents.readers.reading.PART_LENGTH", 60)
    (docs / "long.txt").write_text("".join(f"Line {number} is here.\n\n" for number in range(20)))
    with Index.open("store", encoder) as index, Index.open("fresh", encoder) as fresh:
        with monkeypatch.context() as patch:
            fail_after_first_part(patch)
            report = index.add(docs / "long.txt", passages=SHORT)
        assert [(one.path, one.why) for one in report.skipped] == [("docs/long.txt", "Input/output error")]
        assert report.new == [] and 0 < len(index) < 4
        assert index.add(docs / "long.txt", passages=SHORT).new == ["docs/long.txt"]
        fresh.add(docs / "long.txt", passages=SHORT)
        assert passages(index) == passages(fresh)
        (docs / "long.txt").write_bytes((docs / "long.txt").read_bytes() + b"\0")
        for _ in range(2):
            assert [one.why for one in index.add(docs / "long.txt").skipped] == ["binary, not text"]


def test_passages_of_a_file_that_was_partly_read_are_removed_with_it(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    giraffes, long = docs / "giraffes.txt", docs / "long.txt"
    giraffes.write_text("Giraffes have long necks.\n")
    with Index.open("store", encoder) as index:
        with monkeypatch.context() as patch:
            fail_after_first_part(patch)
            assert [one.is_part for one in index.add(giraffes).skipped] == [False] and len(index) == 1
        giraffes.unlink()
        assert index.add(docs, passages=SHORT).removed == ["docs/giraffes.txt"]
        before = passages(index)
        long.write_text("".join(f"Line {number} is here.\n\n" for number in range(20)))
        _interrupt_second_commit(index, docs, monkeypatch)
        assert len(index) == len(before) + 2
        long.rename(docs / "renamed.txt")
        assert index.add(docs, passages=SHORT, dry_run=True).removed == ["docs/long.txt"]
        (docs / "renamed.txt").unlink()
        assert index.add(docs, passages=SHORT).removed == ["docs/long.txt"] and passages(index) == before


def test_change_that_was_interrupted_and_taken_back_is_read_again(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cats = docs / "cats.txt"
    text, state = cats.read_text(), cats.stat()
    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        before = passages(index)
        cats.write_text("".join(f"Line {number} is here.\n\n" for number in range(20)))
        _interrupt_second_commit(index, docs, monkeypatch)
        assert passages(index) != before
        cats.write_text(text)
        os.utime(cats, ns=(state.st_atime_ns, state.st_mtime_ns))
        index.add(docs, passages=SHORT)
        assert passages(index) == before


def _interrupt_second_commit(index: Index, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = Encoder.embed_document, []

    def interrupted(self: Encoder, given: list[str], report=None) -> np.ndarray:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self, given, report)

    with monkeypatch.context() as patch:
        patch.setattr("bertkit.search.updating._PASSAGES_AT_ONCE", 2)
        patch.setattr(Encoder, "embed_document", interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.add(docs, passages=SHORT)


def test_folder_that_cannot_be_read_keeps_its_passages(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "sub").mkdir()
    (docs / "sub" / "y.txt").write_text("Two.")
    (docs / "link").symlink_to("sub", target_is_directory=True)
    scandir, stat = os.scandir, Path.stat

    def refused(path: str | Path) -> Any:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    def refused_stat(path: Path, **options: Any) -> os.stat_result:
        if path.name == "cats.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    with Index.open("store", encoder) as index:
        skipped = index.add(docs, passages=SHORT).skipped
        link = "links to folders are not followed: give the folder itself"
        assert [(one.path, one.why) for one in skipped] == [("docs/link", link)]
        before = passages(index)
        (docs / "fish.md").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", refused)
            patch.setattr(Path, "stat", refused_stat)
            report = index.add(docs, passages=SHORT)
        assert report.removed == ["docs/fish.md"] and len(index) == len(before) - 1
        assert [(one.path, one.why) for one in report.skipped] == [
            ("docs/link", link),
            ("docs/sub", "the folder cannot be read: Permission denied"),
            ("docs/cats.txt", "Permission denied"),
        ]
        assert index.add(docs, passages=SHORT).num_unchanged == 3


def test_files_of_another_working_directory_are_kept(
    docs: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index.open(tmp_path / "store", encoder) as index:
        index.add("docs", passages=SHORT)
        (tmp_path / "other" / "docs").mkdir(parents=True)
        (tmp_path / "other" / "docs" / "z.txt").write_text("Three.")
        monkeypatch.chdir(tmp_path / "other")
        report = index.add("docs", passages=SHORT)
        assert (report.new, report.removed) == (["docs/z.txt"], [])
        (tmp_path / "docs" / "cats.txt").unlink()
        assert index.add("docs", passages=SHORT).removed == ["docs/cats.txt"]


def test_file_given_by_another_path_is_the_same_file(
    docs: Path, encoder: Path, embedded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index.open(tmp_path / "store", encoder) as index:
        index.add("docs", passages=SHORT)
        names = {one.document_id for one in index.store.records()}
        embedded.clear()
        (docs / "fish.md").write_text("# Fish\n\nFish fly.\n")
        report = index.add(tmp_path / "docs", passages=SHORT)
        absolute = [str(tmp_path / "docs" / name) for name in ("cats.txt", "fish.md", "rows.jsonl")]
        assert [name for _, name in report.renamed] == absolute and len(embedded) == 1
        assert {one.document_id for one in index.store.records()} == {f"{tmp_path}/{name}" for name in names}
        monkeypatch.chdir("docs")
        assert len(index.add(".", passages=SHORT).renamed) == 3
        monkeypatch.chdir(tmp_path)
        report = index.add(["docs", "docs/../docs", tmp_path / "docs"], passages=SHORT)
        assert len(report.renamed) == 3 and not report.new and len(index) == 5
        assert {one.document_id for one in index.store.records()} == names
        with pytest.raises(DataError, match="a path is empty"):
            index.add("")


def test_other_file_of_the_same_name_is_reported_and_kept_under_its_full_path(
    docs: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "docs").mkdir(parents=True)
    (other / "docs" / "cats.txt").write_text("Lions.")
    with Index.open(tmp_path / "store", encoder) as index:
        index.add("docs", passages=SHORT)
        monkeypatch.chdir(other)
        report = index.add("docs", passages=SHORT, dry_run=True)
        assert report.changed == ["docs/cats.txt"]
        assert report.replaced == [("docs/cats.txt", str(tmp_path / "docs" / "cats.txt"))]
        full = str(other / "docs" / "cats.txt")
        assert index.add(other / "docs", passages=SHORT).new == [full]
        before = passages(index)
        assert index.add("docs", passages=SHORT).num_unchanged == 1 and passages(index) == before
        (other / "docs" / "cats.txt").write_text("Tigers.")
        report = index.add("docs", passages=SHORT)
        assert (report.changed, report.replaced) == ([full], [])


def test_files_keep_their_column(docs: Path, encoder: Path) -> None:
    table = docs / "table.csv"
    table.write_text("a,b\nOne.,Two.\n")
    with Index.open("store", encoder) as index:
        index.add(table, column="b", passages=SHORT)
        report = index.add(docs, passages=SHORT)
        assert (report.changed, report.skipped, report.num_unchanged) == ([], [], 1)
        table.write_text("a,b\nThree.,Four.\n")
        index.add(docs, passages=SHORT)
        table.rename(docs / "moved.csv")
        assert index.add(docs, passages=SHORT).renamed == [("docs/table.csv", "docs/moved.csv")]
        assert "Four." in {one[3] for one in passages(index)}
        assert index.add(docs, passages=SHORT, column="a").skipped
        assert {"Three.", "Four."} & {one[3] for one in passages(index)} == {"Three."}


def test_bad_rows_do_not_make_a_file_be_read_again(docs: Path, encoder: Path) -> None:
    (docs / "rows.jsonl").write_text('{"text": "Rain fell."}\n{"text": "Snow \\ud83d."}\nnot json\n')
    with Index.open("store", encoder) as index:
        report = index.add(docs, passages=SHORT)
        assert len(report.new) == 3 and [one.path for one in report.skipped] == ["docs/rows.jsonl"] * 2
        assert index.add(docs, passages=SHORT).num_unchanged == 3


def test_folder_removes_only_files_that_were_below_it(
    docs: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.txt").write_text("One.")
    (docs / "sub").mkdir()
    (docs / "sub" / "y.txt").write_text("Two.")
    (docs / ".hidden.txt").write_text("Three.")
    monkeypatch.chdir(docs)
    absolute = str(tmp_path / "other")
    with Index.open(tmp_path / "store", encoder) as index:
        index.add([absolute, "../other", ".hidden.txt", ".", "sub"])
        for folder in (".", "sub", "..", absolute, "../other"):
            assert index.add(folder).removed == []
        Path("sub/y.txt").unlink()
        assert index.add(".").removed == ["../docs/sub/y.txt"]  # its name since ".." was given
    Path("sub").joinpath("deep").mkdir()
    monkeypatch.chdir("sub/deep")
    with Index.open(tmp_path / "another", encoder) as index:
        index.add("../../../other")
        assert index.add("..").removed == []


def test_documents_replace_those_of_their_id(encoder: Path, embedded: list[str], tmp_path: Path) -> None:
    def document(id: str, text: str) -> bertkit.Document:
        return bertkit.Document(id, text, "T", metadata={"kind": id[0]})

    with Index.open(tmp_path / "store", encoder) as index:
        index.add([document("a", "One is here. Two is here."), document("b", "Three.")], passages=PassageOptions(14, 0))
        assert embedded == ["T: One is here.", "T: Two is here.", "T: Three."]
        embedded.clear()
        index.add(document("a", "Two is here. Four is here."), passages=PassageOptions(14, 0))
        assert embedded == ["T: Four is here."]
        assert passages(index) == {
            ("a", 0, 12, "T: Two is here."), ("a", 13, 26, "T: Four is here."), ("b", 0, 6, "T: Three."),
        }  # fmt: skip


def test_documents_that_name_a_file_as_their_source_are_kept(docs: Path, encoder: Path) -> None:
    own = [bertkit.Document(id, "A note.", metadata={"source": "docs/cats.txt"}) for id in ("note", "docs/cats.txt#1")]
    with Index.open("store", encoder) as index:
        index.add(own)
        assert index.add(docs, passages=SHORT).new == ["docs/cats.txt", "docs/fish.md", "docs/rows.jsonl"]
        (docs / "cats.txt").write_text("The cat ran.")
        assert index.add(docs, passages=SHORT).changed == ["docs/cats.txt"] and len(index) == 6
        (docs / "cats.txt").rename(docs / "cat.txt")
        assert index.add(docs, passages=SHORT).renamed == [("docs/cats.txt", "docs/cat.txt")]
        (docs / "cat.txt").unlink()
        (docs / "rows.jsonl").unlink()
        assert sorted(index.add(docs, passages=SHORT).removed) == ["docs/cat.txt", "docs/rows.jsonl"]
        assert [one.document_id for one in index.store.records()] == ["note", "docs/cats.txt#1", "docs/fish.md"]


def test_versions_added_in_one_transaction_replace_each_other(docs: Path, encoder: Path) -> None:
    with Index.open("store", encoder) as index:
        with index.store.transaction():
            for text in ("One.", "Two.", "Three."):
                index.add(bertkit.Document("a", text))
                index.add(docs, passages=SHORT)
                (docs / "cats.txt").write_text(text)
                (docs / "fish.md").unlink(missing_ok=True)
        assert {one[3] for one in passages(index)} == {"Three.", "Two.", "Rain fell.", "Snow fell."}
        assert index.add(docs, passages=SHORT).changed == ["docs/cats.txt"]


def test_versions_added_by_two_threads_replace_each_other(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second thread starts and ends while the first embeds."""
    embed = Encoder.embed_document
    with Index.open(tmp_path / "store", encoder) as index:
        for number, (first, second) in enumerate([("One.", "Two."), ("Two.", "One."), ("Two.", "Two. Three.")]):
            document = bertkit.Document("a", second)

            def both(self: Encoder, texts: list[str], report=None, document=document) -> np.ndarray:
                monkeypatch.setattr(Encoder, "embed_document", embed)
                thread = Thread(target=index.add, args=(document,))
                thread.start()
                thread.join()
                return embed(self, texts, report)

            monkeypatch.setattr(Encoder, "embed_document", both)
            index.add([bertkit.Document("a", first), bertkit.Document("b", f"Now {number}.")])
            assert {one[3] for one in passages(index)} == {first, f"Now {number}."}


def test_metadata_of_another_type_replaces_the_old(encoder: Path, tmp_path: Path) -> None:
    with Index.open(tmp_path / "store", encoder) as index:
        for value in (1, True, 1.0, "1"):
            index.add(bertkit.Document("a", "One.", metadata={"n": value, "of": "x"}))
            (record,) = index.store.records()
            assert type(record.metadata["n"]) is type(value) and record.metadata["n"] == value
        with index.store.snapshot() as snapshot:
            before = snapshot.numbers().tolist()
        index.add(bertkit.Document("a", "One.", metadata={"of": "x", "n": "1"}))
        with index.store.snapshot() as snapshot:
            assert snapshot.numbers().tolist() == before


def test_metadata_that_cannot_be_stored_is_refused_before_any_work(
    encoder: Path, embedded: list[str], tmp_path: Path
) -> None:
    with Index.open(tmp_path / "store", encoder) as index:
        for metadata, message in (
            ({"context": "mine"}, r"document 'b' has metadata 'context', which an index keeps for .*: rename it"),
            ({"n": {"a": 1}}, "document 'b': metadata 'n' is a dict: expected"),
            ({1: "x", "b": "y"}, "metadata key 1: expected a str"),
        ):
            with pytest.raises(UsageError, match=message):
                index.add([bertkit.Document("a", "One."), bertkit.Document("b", "Two.", metadata=metadata)])
        assert not embedded


def test_documents_of_another_type_are_refused() -> None:
    for id, text, message in (
        (5, "x", "document id 5: expected a str"),
        ("", "x", "document id '': expected a str that is not empty"),
        ("a\0", "x", r"document id 'a\\x00' has a NUL character: remove it"),
        ("q", None, "document 'q': text is NoneType, expected str"),
    ):
        with pytest.raises(UsageError, match=message):
            bertkit.Document(id, text)  # pyrefly: ignore


def test_metadata_without_a_value_is_kept(encoder: Path, tmp_path: Path) -> None:
    with Index.open(tmp_path / "store", encoder) as index:
        index.add([bertkit.Document("a", "One.", metadata={"x": None}), bertkit.Document("b", "Two.")])
        assert [(one.id[0], one.metadata) for one in index.search("One", where=Equal("x", None))] == [
            ("a", {"x": None})
        ]


def test_record_that_is_not_a_passage_is_returned_whole(encoder: Path, tmp_path: Path) -> None:
    with Index.open(tmp_path / "store", encoder) as index:
        (vector,) = index.encoder.embed_document(["A zebra came by."])
        index.store.add([Record("a", "A zebra came by.", vector, metadata={"context": "mine"})])
        index.add(bertkit.Document("b", "A zebra sat.", "T: ", ((0, 1, "H"),)))
        found = {one.id[0]: (one.context, one.text, one.start, one.end) for one in index.search("zebra")}
        assert found == {"a": ("mine", "A zebra came by.", 0, 0), "b": ("T: ", "A zebra sat.", 0, 12)}


def test_passages_and_queries_without_known_words(docs: Path, tmp_path: Path) -> None:
    words = bertkit.StaticEncoder.of_words(["cat", "fish", "rain"], np.eye(3, dtype=np.float32))
    words.save(tmp_path / "words")
    (docs / "cats.txt").write_text("The cat sat. " + "It was warm. " * 5)
    with Index.open("store", tmp_path / "words") as index:
        report = index.add(docs, passages=SHORT)
        assert [(one.path, one.why) for one in report.skipped] == [
            ("docs/cats.txt", "characters 52 to 77 have no word that the model knows: their vector is zero"),
            ("docs/rows.jsonl#2", "characters 0 to 10 have no word that the model knows: their vector is zero"),
        ]
        assert {one[0] for one in passages(index)} == {"docs/cats.txt", "docs/fish.md", "docs/rows.jsonl#1"}
        assert index.add(docs, passages=SHORT).num_unchanged == 3
        assert [one.document_id for one in index.search("warm")] == ["docs/cats.txt"]
        assert index.search("warm", mode="dense") == index.search("snow") == []
        reranker = our_model("sequence_classification", 3, num_labels=1)
        assert index.search("snow", reranker=reranker) == []
        job = BulkEmbedding.create("job", docs, index.encoder, passages=SHORT)
        job.run()
        assert {record.id for record in job.records()} == {record.id for record in index.store.records()}
        assert [(one.path, one.why) for one in job.skipped()] == [(one.path, one.why) for one in report.skipped]


def test_last_document_of_an_id_is_kept_and_queries_are_texts(encoder: Path, tmp_path: Path) -> None:
    with Index.open(tmp_path / "store", encoder) as index:
        index.add([bertkit.Document("a", "One."), bertkit.Document("b", "Two."), bertkit.Document("a", "Three.")])
        assert {one[3] for one in passages(index)} == {"Three.", "Two."}
        with pytest.raises(UsageError, match=r"the query is NoneType \(None\): expected str"):
            index.search(None)  # pyrefly: ignore


def test_modes_filters_and_offsets(docs: Path, encoder: Path) -> None:
    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        lexical = index.search("zebras", mode="lexical")
        assert [one.text for one in lexical] == ["A zebra came by later."]
        assert len(index.search("zebras", mode="dense")) == 5
        hybrid = index.search("zebras")
        assert hybrid[0].text == "A zebra came by later." and len(hybrid) == 5
        assert [one.rank for one in hybrid] == [1, 2, 3, 4, 5]
        for one in hybrid:
            if one.document_id.endswith(("txt", "md")):
                text = Path(one.document_id).read_text()
                assert text[one.start : one.end] == one.text
                assert text[one.snippet.start : one.snippet.end] == one.snippet.text
        fish = index.search("zebras", where=InDocument(("docs/fish.md",)))
        assert [one.document_id for one in fish] == ["docs/fish.md"]
        assert len(index.search("zebra", 2)) == 2 and len(index.search("zebra", 99)) == 5
        for wrong, message in (
            ({"query": " "}, "the query is empty: expected a few words, or a question"),
            ({"query": "a", "k": 0}, "k=0: expected an int of at least 1"),
            ({"query": "a", "mode": "magic"}, "mode='magic': expected one of 'hybrid', 'dense', 'lexical', 'sparse'"),
        ):
            with pytest.raises(UsageError, match=message):
                index.search(**wrong)
        with pytest.raises(UsageError, match="queries is a str"):
            index.search_many("zebra")
        with pytest.raises(UsageError, match=r"unknown extension '.csv', expected .parquet"):
            index.export("passages.csv")
        for sources in (None, [None], 3, [b"x"]):
            with pytest.raises(UsageError, match=r"sources: .* is .*, expected a path or a Document"):
                index.add(sources)  # pyrefly: ignore
        with pytest.raises(UsageError, match="expected sources, got a dict: pass one of its columns"):
            index.add({"text": ["a"]})
        for text in ("just a text", "a long text " * 99, "a text with \0"):
            with pytest.raises(DataError, match=r"a text, instead of a path, is given as Document\(id, text\)"):
                index.add([text])
        for queries in (None, 5, {"zebra": 1}):
            with pytest.raises(UsageError, match="expected queries, got"):
                index.search_many(queries)  # pyrefly: ignore
        for asked in (
            lambda: index.search("a", reranker="my-model"),  # pyrefly: ignore
            lambda: index.answer("a", "my-model"),  # pyrefly: ignore
        ):
            with pytest.raises(UsageError, match=r"is str \('my-model'\): expected a Model, as of bertkit.load"):
                asked()
    with pytest.raises(UsageError, match="document 'a': text has a lone surrogate at character 1"):
        bertkit.Document("a", "x\ud800")
    with pytest.raises(UsageError, match="document 'a': metadata is list, expected a dict"):
        bertkit.Document("a", "text", metadata=[])  # pyrefly: ignore


def test_lines_of_passages_are_those_of_their_files(docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.documents.readers.reading.PART_LENGTH", 100)
    lines = [f"Line {number} is here.\r\n" * 2 + "\n" for number in range(40)]
    (docs / "long.txt").write_bytes("".join(lines).encode())
    (docs / "many.csv").write_text('text,n\n"Tea.\nMilk.",1\n' + f'"{"More tea. " * 20}",2\n')
    (docs / "page.html").write_text("<p>One.\n<p>Two.")
    with Index.open("store", encoder) as index:
        index.add([docs, bertkit.Document("own", "One.\n\nTwo.", offset=7)], passages=PassageOptions(60, 20))
        records = list(index.store.records())
        texts = {path.as_posix(): path.read_bytes().decode() for path in docs.iterdir()} | {
            "own": "\n" * 7 + "One.\n\nTwo."
        }
        assert {one.lines for one in records if one.document_id == "docs/page.html"} == {(0, 0)}
        assert [one.lines for one in records if one.document_id.startswith("docs/many.csv")][:1] == [(2, 2)]
        assert {one.lines for one in records if one.document_id == "docs/many.csv#4"} == {(4, 4)}
        assert [one.lines for one in records if one.document_id == "own"] == [(1, 3)]
        for one in records:
            if one.document_id in ("docs/long.txt", "docs/fish.md", "docs/cats.txt"):
                text = texts[one.document_id]
                assert one.lines == (1 + text.count("\n", 0, one.start), 1 + text.count("\n", 0, one.end))
        (first, *_) = index.search('"Line 17 is here"')
        assert first.lines and first.line_of(first.snippet.start) == 1 + texts["docs/long.txt"].count(
            "\n", 0, first.snippet.start
        )
        assert index.search("Two", where=Equal("source", "docs/page.html"))[0].lines is None
        before = {one.id: one.lines for one in records}
        (docs / "long.txt").write_bytes(b"\n" + "".join(lines).encode())
        index.add(docs, passages=PassageOptions(60, 20))
        after = {one.id: one.lines for one in index.store.records() if one.document_id == "docs/long.txt"}
        assert after and all(lines == (before[id][0] + 1, before[id][1] + 1) for id, lines in after.items())


def test_passages_around_a_result_are_at_the_offsets_of_the_document(docs: Path, encoder: Path) -> None:
    text = "# One\n\n" + "".join(f"Line {number} is here.\n" for number in range(20)) + "\n\n  Indented zebra.\n\nEnd."
    (docs / "long.md").write_text(text)
    with Index.open("store", encoder) as index:
        index.add([docs / "long.md", docs / "rows.jsonl"], passages=PassageOptions(60, 20))
        (one,) = index.search('"zebra"', mode="lexical")
        assert index.around(one, 0) == (one.start, one.text)
        sizes = []
        for number in (1, 2, 99):
            start, around = index.around(one, number)
            assert around == text.strip()[start : start + len(around)] and one.text in around
            sizes.append(len(around))
        assert sizes == sorted(set(sizes)) and sizes[-1] == len(text)
        (row,) = index.search('"rain"', mode="lexical")
        assert index.around(row, 5) == (0, "Rain fell.")
        index.store.delete([row.id])
        assert index.around(row, 5) == (0, "Rain fell.")


def test_words_of_the_query_in_the_snippet_are_marked(docs: Path, encoder: Path) -> None:
    text = "Cafe\u0301s, getUserName and 東京 are \u0e20\u0e32\u0e29\u0e32; zebras-only."
    with Index.open("store", encoder) as index:
        index.add([bertkit.Document("a", "\n" + text), bertkit.Document("b", "Rain fell.")])
        for query, marked in (
            ("café", ["Cafe\u0301s"]), ("getUserName zebra", ["getUserName", "zebras"]), ("京都", ["京"]),
            ("\u0e20\u0e32", ["\u0e20\u0e32\u0e29\u0e32"]), ("nothing", []),
        ):  # fmt: skip
            first = index.search(query, mode="hybrid", where=InDocument(("a",)))[0]
            assert [f"\n{text}"[start:end] for start, end in first.matches] == marked, query


def test_filter_on_a_key_that_no_passage_has_is_said(docs: Path, encoder: Path) -> None:
    with Index.open("store", encoder) as index:
        index.add(bertkit.Document("a", "One.", metadata={"kind": "x", "tags": []}))
        where = And((Equal("kind", "x"), Not(Or((Between("yaer", 3), Contains("b", 1))))))
        results = index.search("one", where=where)
        assert len(results) == 1 and results.missing_keys == ("b", "yaer") and index.keys() == ["kind", "tags"]
        with pytest.warns(UserWarning, match=f"^{results.note_of_keys}$"):
            assert results.warn_of_keys() is results
        assert results.note_of_keys == "no passage has the metadata b, yaer; the keys are kind, tags"
        for known in (None, InDocument(("a",)), Contains("tags", 1)):
            results = index.search("one", where=known)
            assert (results.missing_keys, results.note_of_keys) == ((), "")


def test_command_filters_and_prints_for_people_and_programs(
    docs: Path, encoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "copy.txt").write_text("A zebra came by later.\x1b[31m\n")
    (docs / "zoo.csv").write_text("text,year\nA zebra ran.,2021\nA zebra sat.,2019\n")
    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        index.add(bertkit.Document("copy", "A zebra ran."))
    capsys.readouterr()
    search = ["search", "zebra", "--store", "store", "--mode", "lexical"]
    assert run([*search, "--where", "year >= 2020"]) == 0
    output = capsys.readouterr()
    (row,) = map(json.loads, output.out.splitlines())
    assert not output.err and row["score"] > 0 and row == {
        "score": row["score"], "document": "docs/zoo.csv#2", "line": 2, "start": 0, "end": 12, "context": "",
        "snippet": "A zebra ran.", "metadata": {"source": "docs/zoo.csv", "row": 2, "year": 2021},
    }  # fmt: skip
    assert run([*search, "--where", "year>2000", "--where", '{"row": 3}']) == 0
    assert [json.loads(line)["document"] for line in capsys.readouterr().out.splitlines()] == ["docs/zoo.csv#3"]
    assert run([*search, "--where", "yaer=2021"]) == 0
    assert capsys.readouterr() == ("", "no passage has the metadata yaer; the keys are row, source, year\n")
    assert run([*search, "--context", "1", "--where", "source=docs/cats.txt"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["around"] == Path("docs/cats.txt").read_text().strip() and row["line"] == 3
    for wrong, message in (
        (["--where", "year ~ 2021"], "the condition 'year ~ 2021' has no known operator: expected KEY OPERATOR VALUE"),
        (["--where", '{"year": {"$like": 1}}'], "where.year: unknown operator '$like', expected one of $eq, "),
        (["--context", "-1"], "--context"),
    ):
        assert run([*search, *wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run([*search, "--json", "-k", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["document"]
    assert run([*search, "--where", "source in docs/cats.txt,docs/copy.txt"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith("docs/cats.txt:3  ") or shown.splitlines()[0].startswith(
        "docs/copy.txt:1  "
    )
    assert "  A \x1b[1mzebra\x1b[0m came by later." in shown.splitlines() and "\x1b[31m" not in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert run([*search, "--where", "year=2021"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("docs/zoo.csv:2  ") and lines[1:] == ["  A zebra ran."]
    assert run([*search, "-k", "9"]) == 0
    assert "\n  A zebra ran.\n  also in copy\n" in capsys.readouterr().out


def test_hybrid_results_are_the_largest_sums_for_any_number(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.search.ranking._DEPTH", 4)
    words = "cat dog fish rain snow mat day".split()
    rows = [" ".join(words[(number * step) % 7] for step in (1, 2, 3, 5)) + f" {number}." for number in range(40)]
    with Index.open("store", encoder) as index:
        index.add([bertkit.Document(str(number), row) for number, row in enumerate(rows)])
        for query in ("cat 7", "a dog in the rain", "snow 3 mat", "zebra"):
            expected = [(one.id, one.score) for one in index.search(query, 40)]
            cosines = {one.id: one.score for one in index.search(query, 40, mode="dense")}
            bm25 = {one.id: one.score for one in index.search(query, 40, mode="lexical")}
            scores = dict(expected)
            shares = np.array([scores[id] - cosines[id] for id in bm25]) / np.array(list(bm25.values()))
            assert np.ptp(shares) < 1e-6 if bm25 else scores == pytest.approx(cosines)
            for k in (1, 3, 9):
                assert [(one.id, one.score) for one in index.search(query, k)] == expected[:k]


def test_results_after_those_that_are_reranked_keep_their_order(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = our_model("sequence_classification", 3, num_labels=1)
    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        monkeypatch.setattr("bertkit.search.ranking._DEPTH", 2)
        for mode in ("hybrid", "dense"):
            before, after = (index.search("zebras", 5, mode=mode, reranker=one) for one in (None, reranker))
            assert {one.id for one in after[:2]} == {one.id for one in before[:2]}
            assert [(one.id, one.score) for one in after[2:]] == [(one.id, one.score) for one in before[2:]]
            assert [one.rank for one in after] == [1, 2, 3, 4, 5]


@pytest.mark.full
def test_cross_encoder_reranks_collection(docs: Path, encoder: Path) -> None:
    reranker = our_model("sequence_classification", 3, num_labels=1)
    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        results = index.search("zebras", 3, reranker=reranker)
        texts = [one.text for one in index.store.records()]
        expected = sorted(reranker.score_pairs("zebras", texts).tolist(), reverse=True)[:3]
        assert [one.score for one in results] == pytest.approx(expected, abs=1e-6)
        of_labels = our_model("sequence_classification", 3, num_labels=3)
        with pytest.raises(UsageError, match="one score for each text, but this model has 3 labels"):
            index.search("zebras", 3, reranker=of_labels)


def test_index_that_another_process_creates_while_the_model_is_loaded_is_opened(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Encoder.of

    def after_another(*arguments: Any, **options: Any) -> Encoder:
        monkeypatch.setattr(Encoder, "of", original)
        with Index.open("store", encoder) as index:
            index.add(docs, passages=SHORT)
        return original(*arguments, **options)

    monkeypatch.setattr(Encoder, "of", after_another)
    with Index.open("store", encoder) as index:
        assert len(index) == 5


def test_index_keeps_to_its_model(docs: Path, encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no index"):
        Index.open("store")
    with Index.open("store", encoder) as index:
        for mode in ("hybrid", "dense", "lexical"):
            assert index.search("anything", 10**6, mode=mode) == []
        index.add(docs)
    with Index.open("store") as index:
        assert len(index.search("cat", 2)) == 2
    our_model("pretraining", 3).save(tmp_path / "other")
    with pytest.raises(UsageError, match=r"model '.*/model' in the store, '.*/other' now"):
        Index.open("store", tmp_path / "other")
    with pytest.raises(UsageError, match="query_prompt"):
        Index.open("store", encoder, query_prompt="query: ")


@pytest.mark.full
def test_options_of_another_run_are_those_of_the_index(
    docs: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Index.open("store", encoder, precision="float64", query_prompt="dull ", document_prompt="warm ").close()
    for options in ({}, {"model": encoder}, {"query_prompt": "dull "}, {"precision": "float64"}):
        with Index.open("store", **options) as index:
            assert index.encoder.identity.precision == "float64"
            assert index.encoder.identity.document_prompt == "warm "
    for options, message in (
        ({"precision": "float32"}, "differently: precision 'float64' in the store, 'float32' now. Use"),
        ({"document_prompt": "cold "}, "differently: document_prompt 'warm ' in the store, 'cold ' now. Use"),
        ({"no_prompt": True}, "differently: query_prompt 'dull ' in the store, '' now; document_prompt 'warm '"),
    ):
        with pytest.raises(UsageError, match=message):
            Index.open("store", **options)
    assert run(["index", "docs", "--store", "store", "--precision", "bfloat16"]) == 2
    assert "differently: precision 'float64' in the store, 'bfloat16' now" in capsys.readouterr().err
    assert run(["index", "docs", "--store", "store", "--query-prompt", "dull "]) == 0


def test_prompts_are_put_before_queries_and_passages(docs: Path, encoder: Path) -> None:
    with Index.open("store", encoder, query_prompt="dull ", document_prompt="warm ") as index:
        model = index.encoder.model
        np.testing.assert_array_equal(
            index.encoder.embed_query(["a"])[0], model.embed("dull a", normalize=True, prompt="")
        )
        np.testing.assert_array_equal(
            index.encoder.embed_document(["a"])[0], model.embed("warm a", normalize=True, prompt="")
        )
        index.add(docs)
    with Index.open("store") as index:
        assert index.encoder.identity.query_prompt == "dull "


def test_vectors_of_a_model_published_with_the_dot_product_are_compared_by_it(encoder: Path, tmp_path: Path) -> None:
    model = bertkit.load(encoder)
    model.checkpoint.sentence = SentenceSettings(similarity="dot")
    model.save(tmp_path / "model")
    texts = ["the cat sat", "a warm day", "rain fell", "a zebra came by later", "it was quiet in the sea"]
    documents_ = [bertkit.Document(str(number), text) for number, text in enumerate(texts)]
    with Index.open(tmp_path / "store", tmp_path / "model") as index:
        index.add(documents_)
        results = index.search("snow fell", k=5, mode="dense")
        assert index.store.identity.similarity == "dot" and len(index.search("rain fell", k=5)) == 5
    products = model.embed(texts) @ model.embed("snow fell")
    order = np.argsort(-products).tolist()
    assert [int(one.document_id) for one in results] == order
    assert np.allclose([one.score for one in results], products[order], rtol=1e-5)
    cosines = model.embed(texts, normalize=True) @ model.embed("snow fell", normalize=True)
    assert np.argsort(-cosines).tolist() != order  # so the similarity matters here

    with VectorStore.create(tmp_path / "cosine", Encoder.of(tmp_path / "model", similarity="cosine").identity):
        pass  # an index opens with the similarity of its store
    for name in (None, tmp_path / "model"):
        with Index.open(tmp_path / "cosine", name) as index:
            index.add(documents_)
            nearest = [int(one.document_id) for one in index.search("snow fell", k=5, mode="dense")]
            assert nearest == np.argsort(-cosines).tolist()
    model.checkpoint.sentence = SentenceSettings(similarity="dot", normalize=True)
    model.save(tmp_path / "normalized")
    assert Encoder.of(tmp_path / "normalized").identity.similarity == "cosine"  # the same for vectors of length 1


def test_queries_are_not_cut_silently(docs: Path, encoder: Path) -> None:
    with Index.open("store", encoder) as index, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        index.add(docs)
        index.search("cat", k=1)
        assert not seen
        index.search("cat " * 30, k=1)
        index.encoder.embed_document(["cat " * 30])
    assert [str(one.message) for one in seen] == [
        "1 of 1 texts exceeded the model's maximum length and lost 8 tokens; shorten them to compare them in full"
    ] * 2


def test_known_families_ask_for_a_prompt() -> None:
    plain = SentenceSettings()
    assert prompts_of("all-MiniLM-L6-v2", plain) == Prompts("", "")
    for name, words in {
        "intfloat/e5-small-v2": "--query-prompt 'query: ' and --document-prompt 'passage: '",
        "BAAI/bge-small-en-v1.5": "Represent this sentence",
        "thenlper/gte-small": "uses none: confirm with --no-prompt",
        "Snowflake/snowflake-arctic-embed-xs": "Represent this sentence",
        "nomic-ai/nomic-embed-text-v1": "search_query: ",
    }.items():
        for settings in (plain, SentenceSettings(prompts={"query": "", "document": ""})):  # as version 5 saves it
            with pytest.raises(UsageError, match=words):
                prompts_of(name, settings)
        assert prompts_of(name, plain, no_prompt=True) == Prompts("", "")
        assert prompts_of(name, plain, "q: ") == Prompts("q: ", "")
        stored = SentenceSettings(prompts={"query": "a ", "passage": "b "})
        assert prompts_of(name, stored) == Prompts("a ", "b ")
    with pytest.raises(UsageError, match="cannot be combined with --no-prompt"):
        prompts_of("e5-small", plain, "q", no_prompt=True)


def our_answerer() -> bertkit.Model:
    answerer = our_model("question_answering", 3)
    answerer.checkpoint.trained = TrainedTask(QuestionAnswering(), Layout(24, "window"))
    return answerer


@pytest.mark.full
def test_command_answers_from_the_results_of_mode_and_reranker(
    docs: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    our_answerer().save("answerer")
    our_model("sequence_classification", 3, num_labels=1).save("reranker")
    with Index.open("store", encoder) as index:
        index.add(docs, passages=SHORT)
        reranked = index.search("zebras", 1, reranker=bertkit.load("reranker"))
    capsys.readouterr()
    arguments = ["search", "zebras", "--store", "store", "--answer", "answerer"]
    assert run([*arguments, "--mode", "lexical"]) == 0
    assert {json.loads(line)["document"] for line in capsys.readouterr().out.splitlines()} == {"docs/cats.txt"}
    assert run([*arguments, "-k", "1", "--rerank", "reranker"]) == 0
    assert json.loads(capsys.readouterr().out)["document"] == reranked[0].document_id


def test_answers_are_spans_of_documents(docs: Path, encoder: Path) -> None:
    answerer = our_answerer()
    with Index.open("store", encoder) as index:
        assert index.answer("who?", answerer) == []
        index.add(docs, passages=SHORT)
        answers = index.answer("Who sat on the mat?", answerer, 5)
        assert answers and [one.probability for one in answers] == sorted(
            (a.probability for a in answers), reverse=True
        )
        for one in answers:
            if not one.document_id.startswith("docs/rows"):
                assert Path(one.document_id).read_text()[one.start : one.end] == one.text
        classifier = our_model("sequence_classification", 3)
        classifier.checkpoint.trained = TrainedTask(SequenceClassification(("a", "b")), Layout(24))
        with pytest.raises(MissingHeadError, match="expected one for question-answering"):
            index.answer("Who sat on the mat?", classifier)


@pytest.mark.full
def test_search_says_why_nothing_is_found(docs: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", "docs", "--store", "store", "--model", str(encoder)]) == 0
    capsys.readouterr()
    for arguments, code, said in (
        (["cat", "--where", "source = x"], 0, "no passage fits the query and meets --where"),
        (
            ["the", "--mode", "lexical"],
            0,
            "no passage fits the query; the commonest words count only in quotation marks",
        ),
        (["a", "cat", "sat"], 2, "bertkit: not expected: cat sat; a text of several words needs quotation marks (see "),
    ):
        assert run(["search", *arguments, "--store", "store"]) == code
        assert capsys.readouterr().err.startswith(said)


def test_index_among_its_files_is_found_from_elsewhere(
    docs: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(encoder, "model")
    (docs / "store").mkdir()
    with Index.open("docs/store", "model") as index:
        for _ in range(2):
            report = index.add(docs)
            assert [(one.path, one.why) for one in report.skipped] == [("docs/store/", "the folder of an index")]
        assert {one[0].partition("#")[0] for one in passages(index)} == {
            "docs/cats.txt", "docs/fish.md", "docs/rows.jsonl"
        }  # fmt: skip
    monkeypatch.chdir(docs)
    assert run(["search", "zebra", "--store", "store", "-k", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["document"] == "docs/cats.txt"


def test_commands(docs: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["index", "docs", "--store", "store", "--model", str(encoder)]
    assert run([*arguments, "--dry-run"]) == 0 and not Path("store").exists()
    output = capsys.readouterr()
    assert [json.loads(line)["file"] for line in output.out.splitlines()] == [
        "docs/cats.txt", "docs/fish.md", "docs/rows.jsonl",
    ]  # fmt: skip
    assert "would be 3 new, 0 changed" in output.err
    assert run(arguments) == 0
    listed = capsys.readouterr().err
    assert "3 new, 0 changed" in listed and "docs/cats.txt: 1 passages" in listed.splitlines()
    (docs / "fish.md").unlink()
    (docs / "notes.xyz").write_bytes(b"\0")
    assert run(["index", "docs", "--store", "store", "--dry-run"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == {"change": "removed", "file": "docs/fish.md"}
    assert "skipped docs/notes.xyz: binary, and of unknown extension '.xyz'" in output.err
    for number in range(20):
        (docs / f"{number}.xyz").touch()
    (docs / "z").write_bytes(b"\0")
    (docs / "z.xyz").touch()
    (docs / "zebra.txt").write_bytes(b"zebra\0")
    os.mkfifo(docs / "pipe.txt")
    assert run(["index", "docs", "--store", "store"]) == 0
    listed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("skipped ")]
    assert listed[0] == "skipped docs/pipe.txt: a pipe, socket or device, not a file"
    assert listed[1] == "skipped docs/zebra.txt: binary, not text" and listed[2].endswith("unknown extension '.xyz'")
    assert len(listed) == 23
    assert listed[-1] == "skipped 3 more files without text or excluded ones: 2 .xyz, 1 no extension"
    (docs / "pipe.txt").unlink()
    assert run(["index", "docs", "--store", "store"]) == 0
    assert run(["index", "docs", "--store", "store", "--scan", "float32"]) == 2
    assert "has --scan int8, not 'float32'" in capsys.readouterr().err
    assert run(["index", "--store", "store", "--export", "passages.parquet"]) == 0
    assert capsys.readouterr().err == f"passages.parquet: {len(list(read_records('passages.parquet')))} passages\n"
    absent, dry = ["--store", "absent", "--export", "x.parquet"], ["docs", "--dry-run", "--export", "x.parquet"]
    for wrong in (absent, dry, ["--export", "x.csv"]):
        assert run(["index", "--store", "store", *wrong]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert run(["search", "zebra", "--store", "store", "-k", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 2 and "zebra" in rows[0]["snippet"]
    assert (docs / "cats.txt").read_text()[rows[0]["start"] : rows[0]["end"]] == rows[0]["snippet"]
    assert run(["index", "docs", "--store", "signs", "--model", str(encoder), "--scan", "1-bit"]) == 0
    assert run(["search", "zebra", "--store", "signs"]) == 0
    assert "scanned in 1 bit" in capsys.readouterr().err
    for wrong in (["index"], ["index", "absent", "--store", "store"], ["search", "a", "--store", "absent"]):
        assert run(wrong) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
