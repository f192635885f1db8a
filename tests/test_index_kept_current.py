"""Index: removal, restored passages, names of files and documents, changes that are watched, and stale results."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bertkit
from bertkit.cli import run
from bertkit.documents import watching
from bertkit.documents.passages import PassageOptions
from bertkit.errors import DataError, UsageError
from bertkit.search import VectorStore
from bertkit.search.index import Index

SHORT = PassageOptions(60, 0)
FILES = {
    "docs/cats.txt": "The cat sat on the mat. It was a warm day.\n\nA zebra came by later.\n",
    "docs/deep/fish.md": "# Fish\n\nFish swim in the sea. They are quiet.\n",
    "docs/rows.jsonl": '{"text": "Rain fell."}\n{"text": "Snow fell."}\n',
    "docs2/bread.txt": "Bread is baked at night.",
}


@pytest.fixture
def index(tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index of two folders of the working directory, and of two documents."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    with Index.open(tmp_path / "store", encoder) as index:
        index.add(["docs", "docs2"], passages=SHORT)
        index.add([bertkit.Document("1", "Apples are red."), bertkit.Document("docs/note", "Plums are blue.")])
        yield index


def records(index: Index) -> set[tuple[str, int, int, str]]:
    return {(one.id, one.start, one.end, one.text) for one in index.store.records()}


def names(index: Index) -> list[str]:
    return sorted({one.document_id for one in index.store.records()})


# Removal


def test_files_folders_and_documents_are_removed(index: Index) -> None:
    rows = ["docs/rows.jsonl#1", "docs/rows.jsonl#2"]
    assert names(index) == ["1", "docs/cats.txt", "docs/deep/fish.md", "docs/note", *rows, "docs2/bread.txt"]
    for expected, given in (
        (["docs/cats.txt"], "docs/cats.txt"),
        (["1"], ["1"]),
        (["docs/deep/fish.md"], Path("docs/deep")),
        (["docs/rows.jsonl", "docs/note"], ["./docs/", "docs/note"]),  # a document has no place below a folder
    ):
        before = records(index)
        assert index.remove(given, dry_run=True).removed == expected and records(index) == before
        report = index.remove(given)
        assert report.removed == expected and not report.skipped and len(index) < len(before)
        assert not set(expected) & set(names(index))
    assert names(index) == ["docs2/bread.txt"] and not index.search("rain", mode="lexical")
    assert index.add("docs", passages=SHORT).new == ["docs/cats.txt", "docs/deep/fish.md", "docs/rows.jsonl"]


def test_names_that_are_not_in_the_index_are_reported(index: Index) -> None:
    report = index.remove(["docs/cats.txt", "docs/dogs.txt", "docs/rows.jsonl#2", "2"])
    assert report.removed == ["docs/cats.txt"]
    assert [(one.path, one.why) for one in report.skipped] == [
        ("docs/dogs.txt", "not in the index"),
        ("docs/rows.jsonl#2", "a part of docs/rows.jsonl, which can be removed whole"),
        ("2", "not in the index"),
    ]
    before = records(index)
    with pytest.raises(DataError, match=r"docs/cats.txt: not in the index; 2: not in the index"):
        index.remove(["docs/cats.txt", "2"])
    for wrong, message in (
        ("", "a name is empty: expected a file or folder"),
        ([None], "names: None is NoneType, expected a path or the id of a document"),
        (3, "names: 3 is int, expected a path"),
    ):
        with pytest.raises(UsageError, match=message):
            index.remove(wrong)  # pyrefly: ignore
    assert index.remove([]).removed == [] and records(index) == before


def test_paths_are_of_the_working_directory_or_names(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other" / "docs").mkdir(parents=True)
    (tmp_path / "other" / "docs" / "cats.txt").write_text("Lions.")
    monkeypatch.chdir("other")
    full = str(tmp_path / "other" / "docs" / "cats.txt")
    with pytest.raises(DataError, match=r"\.: not in the index"):
        index.remove(".")
    index.add(tmp_path / "other" / "docs")
    assert index.remove("docs/cats.txt").removed == [full]  # the one of this directory
    assert index.remove("docs/cats.txt").removed == ["docs/cats.txt"]  # as results name it
    assert index.remove(tmp_path / "docs2").removed == ["docs2/bread.txt"]
    assert index.remove("../docs/deep").removed == ["docs/deep/fish.md"]


def test_file_that_is_gone_can_be_removed(index: Index) -> None:
    Path("docs/cats.txt").unlink()
    assert index.remove("docs/cats.txt").removed == ["docs/cats.txt"]


def test_command_removes(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    index.close()
    arguments = ["index", "--remove", "docs/deep", "1", "absent", "--store", "store"]
    rows = [{"change": "removed", "file": name} for name in ("docs/deep/fish.md", "1")]
    counts = "0 new, 0 changed, 0 renamed, 2 removed, 0 unchanged files"
    for options, notes in (
        (["--dry-run"], [f"would be {counts}", "0 passages in the new and changed files"]),
        ([], [counts, "store: 6 passages, 0 embedded now"]),
    ):
        assert run([*arguments, *options]) == 0
        output = capsys.readouterr()
        assert [json.loads(line) for line in output.out.splitlines()] == rows
        assert output.err.splitlines() == [*notes, "skipped absent: not in the index"]
    for wrong, message in (
        (["--remove", "docs/deep", "--store", "store"], "docs/deep: not in the index"),
        (["--remove", "docs", "--store", "nowhere"], "nowhere holds no index to change"),
        (["--remove", "docs", "--store", "store", "--column", "a"], "--remove takes paths, --store and --dry-run"),
        (["--remove", "docs", "--store", "store", "--watch"], "omit it, or --dry-run, --remove and --export"),
        (["--remove", "--store", "store"], "index requires files or folders"),
    ):
        assert run(["index", *wrong]) == 2
        assert message in capsys.readouterr().err


# Restored passages


def deleted(store: VectorStore, ids: list[str]) -> None:
    store.delete(ids[:1])


def all_deleted(store: VectorStore, ids: list[str]) -> None:
    store.delete(ids)


def replaced(store: VectorStore, ids: list[str]) -> None:
    (record,) = store.get(ids[:1])
    store.upsert([replace(record, text="Something else.", metadata={})])


@pytest.mark.parametrize("change", [deleted, all_deleted, replaced])
def test_passages_changed_in_the_store_are_restored(index: Index, change: Callable[..., None]) -> None:
    before = records(index)
    ids = [one.id for one in index.store.records() if one.document_id == "docs/cats.txt"]
    index.close()
    with VectorStore.open("store") as store:  # without the tables of an index
        change(store, ids)
    with Index.open("store") as index:
        assert records(index) != before
        for dry_run in (True, False):
            report = index.add(["docs", "docs2"], passages=SHORT, dry_run=dry_run)
            assert (report.new, report.changed, report.num_unchanged) == ([], ["docs/cats.txt"], 3)
        assert report.num_embedded == (len(ids) if change is all_deleted else 1)
        assert records(index) == before and index.add(["docs", "docs2"]).num_unchanged == 4


def test_row_of_a_table_is_restored(index: Index) -> None:
    before = records(index)
    index.store.delete([one.id for one in index.store.records() if one.document_id == "docs/rows.jsonl#2"])
    assert index.add("docs", passages=SHORT).changed == ["docs/rows.jsonl"] and records(index) == before


def test_passages_of_a_renamed_file_are_restored(index: Index) -> None:
    ids = [one.id for one in index.store.records() if one.document_id == "docs/cats.txt"]
    index.store.delete(ids[:1])
    Path("docs/cats.txt").rename("docs/cat.txt")
    report = index.add("docs", passages=SHORT)
    assert report.renamed == [("docs/cats.txt", "docs/cat.txt")] and report.num_embedded == 1
    assert names(index).count("docs/cat.txt") == 1 and len(index) == 8


def test_passages_removed_by_a_repair_are_restored(index: Index) -> None:
    before = records(index)
    (id,) = [one.id for one in index.store.records() if one.text.startswith("A zebra")]
    with index.store.transaction() as connection:
        connection.execute("UPDATE record SET text = 'x', metadata = '{' WHERE id = ?", [id])
    assert index.store.verify()
    assert index.store.repair(index.encoder.embed_document).removed == [id] and records(index) != before
    assert index.add("docs", passages=SHORT).changed == ["docs/cats.txt"] and records(index) == before


# Names


def test_document_with_the_name_of_a_file_is_refused(index: Index) -> None:
    before = records(index)
    message = r"document 'docs/cats.txt' has the name of a file of the index: choose another id, or remove .*'docs/cats"
    given = [bertkit.Document("2", "Two."), bertkit.Document("docs/cats.txt", "Mine.")]
    for text in (given, bertkit.Document("docs/cats.txt", "")):
        with pytest.raises(UsageError, match=message):
            index.add(text)
    Path("docs/empty.txt").write_text("")
    Path("docs/new.txt").write_text("New.")
    index.add("docs/empty.txt")
    with pytest.raises(UsageError, match=r"'docs/empty.txt' has the name"), index.store.transaction():
        index.add(bertkit.Document("docs/empty.txt", "Mine."))
    with pytest.raises(UsageError, match=r"'docs/new.txt' has the name"), index.store.transaction():
        index.add("docs/new.txt")
        index.add(bertkit.Document("docs/new.txt", "Mine."))
    assert records(index) == before
    index.remove("docs/cats.txt")
    index.add(given)
    assert {"2", "docs/cats.txt"} < set(names(index))


def test_file_with_the_id_of_a_document_is_skipped(index: Index) -> None:
    Path("docs/note").write_text("My own note.")
    before = records(index)
    why = "a document of the index has this id: remove it, or give the file by another path"
    for dry_run in (True, False):
        report = index.add("docs", passages=SHORT, dry_run=dry_run)
        assert (report.new, report.num_unchanged) == ([], 3)
        assert [(one.path, one.why) for one in report.skipped] == [("docs/note", why)]
    assert records(index) == before
    assert index.add(Path("docs/note").absolute()).new == [str(Path("docs/note").absolute())]
    index.remove("docs/note")
    index.remove("docs/note")
    assert index.add("docs", passages=SHORT).new == ["docs/note"]


def test_document_whose_source_is_a_file_of_its_name_is_replaced_by_the_file(index: Index) -> None:
    index.add(bertkit.Document("docs/new.txt", "A draft.", metadata={"source": "docs/new.txt"}))
    Path("docs/new.txt").write_text("The text.")
    assert index.add("docs", passages=SHORT).new == ["docs/new.txt"]
    assert [one.text for one in index.store.records() if one.document_id == "docs/new.txt"] == ["The text."]


def test_document_with_the_id_of_a_row_leaves_the_row(index: Index) -> None:
    before = records(index)
    for text in ("Mine.", "Mine again."):
        index.add(bertkit.Document("docs/rows.jsonl#1", text))
        assert len(records(index) - before) == 1 and before < records(index)
    assert index.add("docs", passages=SHORT).num_unchanged == 3


# Results


def test_results_of_changed_and_missing_files_are_marked(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    def states() -> dict[str, str]:
        return {one.document_id.partition("#")[0]: one.file_state for one in index.search("the", 20)}

    assert states() == dict.fromkeys([*FILES, "1", "docs/note"], "current")
    results = index.search("the", 20)
    Path("docs/cats.txt").write_text("The cat ran.")
    os.utime("docs/rows.jsonl", ns=(1, 1))
    Path("docs/deep/fish.md").unlink()
    expected = {"docs/cats.txt": "changed", "docs/rows.jsonl": "changed", "docs/deep/fish.md": "missing"}
    assert states() == dict.fromkeys([*FILES, "1", "docs/note"], "current") | expected
    assert {one.file_state for one in results} == {"changed", "missing", "current"}  # as it is when it is asked for
    index.close()
    assert run(["search", "the", "--store", "store", "-k", "20"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["document"].partition("#")[0]: row["file_state"] for row in rows if "file_state" in row} == expected
    with Index.open("store") as index:
        index.add("docs", passages=SHORT)
        assert set(states().values()) == {"current"}


# Changes that are watched


def test_command_watches(index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    index.close()
    watched = []

    def changes(paths: tuple[str, ...], ignored: Path) -> Iterator[None]:
        watched.append((paths, ignored))
        yield  # as it begins
        assert capsys.readouterr().err.splitlines()[-1] == "store: 8 passages, 0 embedded now"
        Path("docs/new.txt").write_text("Apples.")
        Path("docs/cats.txt").write_text("The cat ran.")
        Path("docs/deep/fish.md").rename("docs/fish.md")
        Path("docs/rows.jsonl").unlink()
        yield
        lines = (
            "new docs/new.txt|changed docs/cats.txt|renamed docs/fish.md from docs/deep/fish.md|removed docs/rows.jsonl"
        )
        assert [one for one in capsys.readouterr().err.splitlines() if "passages" not in one] == lines.split("|")
        Path("docs/new.txt").write_bytes(b"\0")
        yield
        assert "skipped docs/new.txt: the file has zero bytes" in capsys.readouterr().err
        yield
        assert "skipped" not in capsys.readouterr().err  # as it was before
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "changes_at", changes)
    assert run(["index", "docs", "docs2", "--store", "store", "--watch"]) == 130
    assert watched == [(("docs", "docs2"), Path("store"))]
    assert capsys.readouterr().err == "bertkit: stopped\n"
    with Index.open("store") as index:
        assert names(index) == ["1", "docs/cats.txt", "docs/fish.md", "docs/note", "docs2/bread.txt"]


def test_watching_needs_its_library_before_any_work(
    index: Index, encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert run(["index", "docs", "--store", "new", "--model", str(encoder), "--watch"]) == 2
    assert "watching files needs watchfiles: pip install 'bertkit[watch]'" in capsys.readouterr().err
    assert not Path("new").exists()
    assert run(["index", "docs", "--store", "store", "--watch", "--dry-run"]) == 2
    assert "--watch indexes files until you stop it: omit it, or --dry-run" in capsys.readouterr().err


def test_changes_of_files_that_are_read_are_reported(tmp_path: Path) -> None:
    folder, file = tmp_path / "docs", tmp_path / "single.txt"
    folder.mkdir()
    file.write_text("One.")
    batches = iter([set(), {1}, set(), "replaced", set(), "edited", set(), "gone", set(), set()])
    read = ["a.txt", "deep/a.txt", ".gitignore", "deep/.gitignore"]
    not_read = [".git/index", ".a.txt.swp", "store/store.sqlite", "../else.txt"]
    calls = []

    def watch(*folders: Path, watch_filter: Callable[[Any, str], bool], **options: Any) -> Iterator[set]:
        wanted = [one for one in read + not_read if watch_filter("modified", os.path.normpath(folder / one))]
        calls.append((folders, wanted))
        for batch in batches:
            if batch == "replaced":
                folder.rename(tmp_path / "old")
                folder.mkdir()
            elif batch == "edited":
                file.write_text("Another text.")
            elif batch == "gone":
                folder.rmdir()
            yield batch if isinstance(batch, set) else set()
        raise KeyboardInterrupt

    num_reported = 0
    with pytest.raises(KeyboardInterrupt):
        for _ in watching._changes(watch, [folder, file], str(folder / "store")):
            num_reported += 1
    assert num_reported == 5  # the change, and whenever it begins, as changes before that are not seen
    assert calls == [((folder,), read)] * 3 + [((), [])]


@pytest.mark.full
def test_changes_are_seen(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles", reason="watchfiles is not installed")
    (tmp_path / "docs").mkdir()
    (tmp_path / "single.txt").write_text("One.")
    changes = watching.changes_at([tmp_path / "docs", tmp_path / "single.txt", tmp_path / "later"], tmp_path / "store")
    next(changes)
    for change in (
        lambda: (tmp_path / "docs" / "new.txt").write_text("New."),
        lambda: (tmp_path / "single.txt").write_text("Another."),
        lambda: (tmp_path / "later").mkdir(),
        lambda: (tmp_path / "later" / "new.txt").write_text("New."),
    ):
        change()
        next(changes)  # waits for it
