"""Files to documents and sentences: formats, folders, layouts, bad rows, bytes that are not UTF-8."""

import csv
import json
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest

from bertkit.corpus import read_texts
from bertkit.corpus.documents import Reading, Sentence, read_parts, read_sentences, readable_sentences
from bertkit.corpus.texts import find_files, read_rows
from bertkit.errors import DataError, UsageError
from bertkit.files import SkippedRow

DOCUMENTS = [["Mr. Smith came.", "He saw 3.14 cats!"], ["Only one é."], ["A fox ran,", "then it sat."]]


def documents(sentences: list[Sentence]) -> list[list[str]]:
    grouped: list[list[str]] = []
    for sentence in sentences:
        if sentence.starts_document:
            grouped.append([])
        grouped[-1].append(sentence.text)
    return grouped


def read(*sources: str | Path, **reading) -> list[list[str]]:
    return documents(list(read_sentences(list(sources), Reading(**reading))))


def write(path: Path, rows: list[str]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"id": 1, "text": row}) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        import pyarrow

        parquet.write_table(pyarrow.table({"id": [1] * len(rows), "text": rows}), path)
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["id", "text"], *([1, row] for row in rows)])
    return path


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    for folder in (corpus / "own", corpus / ".old", elsewhere / "deep"):
        folder.mkdir(parents=True)
    for path in (corpus / "b.txt", corpus / "own" / "a.txt", elsewhere / "c.txt", elsewhere / "deep" / "d.md"):
        path.write_text("One sentence.")
    (corpus / ".old" / "e.txt").write_text("Hidden, but linked to.")
    (corpus / "loop").symlink_to(".")
    (corpus / "again").symlink_to("own")
    (corpus / "link").symlink_to(elsewhere)
    (corpus / "same").symlink_to(elsewhere)
    (corpus / "current").symlink_to(".old")
    (corpus / ".hidden").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(corpus)
    (corpus / "dangling").symlink_to("missing")
    files, others = find_files(corpus)
    names = ["b.txt", "current/e.txt", "link/c.txt", "own/a.txt"]
    assert [str(file.relative_to(corpus)) for file in files] == names
    assert others == [corpus / "link" / "deep" / "d.md"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n\n"])
def test_lines_of_sentences(tmp_path: Path, line_end: str, bom: str, last: str) -> None:
    """Sentences are lines with any content; documents are separated by empty lines, with or without white space."""
    path = tmp_path / "a.txt"
    text = "\n\n \u00a0\n".join("\n".join(document) for document in DOCUMENTS)
    path.write_bytes((bom + "\n" + text + last).replace("\n", line_end).encode())
    results = list(read_sentences(path, Reading("lines")))
    assert documents(results) == DOCUMENTS
    assert [sentence.line for sentence in results] == [2, 3, 6, 9, 10]
    assert {sentence.path for sentence in results} == {str(path)}


def test_running_text(tmp_path: Path) -> None:
    """The file is the document; sentences continue over line ends, not over empty lines."""
    path = tmp_path / "a.txt"
    path.write_text("CHAPTER I\n\nMr. Smith\ncame. He saw\r\n3.14 cats! It\n\n \nended\n", encoding="utf-8")
    results = list(read_sentences(path, Reading("running")))
    assert documents(results) == [["CHAPTER I", "Mr. Smith came.", "He saw 3.14 cats!", "It", "ended"]]
    assert [sentence.line for sentence in results] == [1, 3, 4, 5, 8]
    assert read(path, layout="paragraphs") == [
        ["CHAPTER I", "Mr. Smith", "came.", "He saw", "3.14 cats!", "It", "ended"]
    ]


@pytest.mark.parametrize("extension", [".jsonl", ".csv", ".parquet"])
def test_row_is_a_document(tmp_path: Path, extension: str) -> None:
    rows = ["Mr. Smith came. He saw\n3.14 cats!", "", "  \n", "Only one é.", 'He "said" so, then.\n\nA fox.']
    path = write(tmp_path / f"a{extension}", rows)
    expected = [["Mr. Smith came.", "He saw", "3.14 cats!"], ["Only one é."], ['He "said" so, then.', "A fox."]]
    assert read(path) == read(path, column="text") == expected
    assert read(path, layout="running")[0] == ["Mr. Smith came.", "He saw 3.14 cats!"]
    assert read(path, layout="lines")[0] == ["Mr. Smith came. He saw", "3.14 cats!"]
    with pytest.raises(DataError, match="has no column 'body', it has id, text"):
        read(path, column="body")


def test_wrapped_text_in_rows_is_unwrapped(tmp_path: Path) -> None:
    wrapped = (
        "It was a bright cold day and the clocks\nwere striking thirteen. Smith, his chin\nnuzzled into his breast, "
        "ran. He\nslipped in."
    )
    path = write(tmp_path / "a.jsonl", [wrapped] * 3)
    assert read(path)[2] == [
        "It was a bright cold day and the clocks were striking thirteen.",
        "Smith, his chin nuzzled into his breast, ran.",
        "He slipped in.",
    ]


def test_folders_are_read_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/B.jsonl", "c/d/e.txt", ".hidden/f.txt", ".g.txt", "notes.md", "a/data.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(name))
    files, left_out = find_files(tmp_path)
    names = ["a/B.jsonl", "a/z.txt", "b.txt", "c/d/e.txt"]
    assert [file.relative_to(tmp_path).as_posix() for file in files] == names
    assert [file.relative_to(tmp_path).as_posix() for file in left_out] == ["a/data.bin", "notes.md"]
    assert [text.strip('"') for text in read_texts(tmp_path)] == names
    assert len(read(tmp_path, tmp_path / "b.txt")) == 5
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no .txt, .jsonl"):
        find_files(tmp_path / "empty")
    with pytest.raises(UsageError, match=r"unknown extension '.md'"):
        find_files(tmp_path / "notes.md")
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "b.txt", tmp_path / "none.txt")


@pytest.mark.full
def test_documentation_of_python(documentation: list, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules, topics and built-ins are documents; no paragraph is lost."""
    passages = documentation
    monkeypatch.setattr("bertkit.corpus.texts.python_docs", lambda: iter(passages))
    results = read("python-docs")
    assert " ".join(" ".join(document) for document in results).split() == " ".join(p.text for p in passages).split()
    assert 400 < len(results) < 1_500 and sum(map(len, results)) > 1.3 * len(passages)
    assert sum(len(document) > 1 for document in results) > 0.8 * len(results)
    assert len(list(read_texts("python-docs"))) == len(results)


def test_bad_rows_are_skipped_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "One."}\n{"text": \n\n{"text": null}\n[1]\n{"body": "x"}\n{"text": "b\xe4d"}\n'
        b'{"text": "\\ud800"}\n"plain"\n{"text": "Two."}\n\n\n'
    )
    (tmp_path / "b.csv").write_bytes(b'id,text\n1,One.\n2\n3,"b\xe4d\nrow"\n4,x"y\n5,"a" b\n\n6,"Two,\nlines."\n7,"end')
    problems = {
        "a.jsonl": {
            2: "is not JSON", 3: "is empty", 4: "NoneType", 5: "JSON list", 6: "no column 'text'", 7: "not UTF-8",
            8: "surrogate",
        },
        "b.csv": {3: "1 fields, but the header", 4: "UTF-8", 7: "expected after", 8: "is empty", 11: "unexpected end"},
    }  # fmt: skip
    expected = {"a.jsonl": ["One.", "plain", "Two."], "b.csv": ["One.", 'x"y', "Two,", "lines."]}
    for name, wanted in problems.items():
        set_aside: list[SkippedRow] = []
        results = [sentence.text for sentence in read_sentences(tmp_path / name, Reading("paragraphs"), set_aside)]
        assert results == expected[name]
        assert [one.line for one in set_aside] == list(wanted)
        for one, why in zip(set_aside, wanted.values(), strict=True):
            assert why in str(one) and str(one).startswith(f"{tmp_path / name}, line {one.line}")
        with pytest.raises(DataError, match=f"{name}, line {next(iter(wanted))}"):
            read(tmp_path / name)
        with pytest.raises(DataError, match=f"{name}, line {next(iter(wanted))}"):
            list(read_texts(tmp_path / name))
    assert "x" in [row.text for row in read_rows(tmp_path / "a.jsonl", "body")]


def test_invalid_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("One é \ufffd. \n\nTwo ".encode() + b"b\xe4d\xff\xfe one.\nThree.\n")
    set_aside: list[SkippedRow] = []
    results = list(read_sentences(path, Reading("lines"), set_aside))
    assert documents(results) == [["One é \ufffd."], ["Three."]]  # the document begins with what is left of it
    assert [(one.line, one.text) for one in set_aside] == [(3, "Two b\ufffdd\ufffd\ufffd one.")]
    with pytest.raises(DataError, match=r"a.txt, line 3: the sentence holds bytes that are not UTF-8"):
        list(read_sentences(path, Reading("lines")))
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'"One b\xe4d."\n"Two."\n')
    with pytest.raises(DataError, match=r"a.jsonl, line 1: byte 6 is not UTF-8"):
        list(read_sentences(path))


def test_lines_of_old_macintosh_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"The soup was hot.\rno mark at its end\r\rShe went in.\r")
    sentences = list(read_sentences(path, Reading("lines")))
    assert documents(sentences) == [["The soup was hot.", "no mark at its end"], ["She went in."]]
    assert [sentence.line for sentence in sentences] == [1, 2, 4]


def test_text_of_which_most_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Two."}\n{"text": "Three."}\n{"body": "One."}\n{"text": null}\n')
    assert [one.text for one in readable_sentences(path, Reading())] == ["Two.", "Three."]
    with pytest.raises(
        DataError,
        match=r"^3 of 4 rows and sentences cannot be read, and no option .*; the first: .*a.jsonl, line 1 has",
    ):
        list(readable_sentences(path, Reading(column="body")))
    path = tmp_path / "b.txt"
    path.write_text("Der K\u00e4se.\nDie T\u00fcr.\nBrot.\n", encoding="latin-1")
    with pytest.raises(DataError, match=r"^2 of 3 .*b.txt, line 1: .* not UTF-8; convert the file \(iconv"):
        list(readable_sentences(path, Reading("lines")))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"(\xb5/\xfd", r"compressed \(zstd -d\)"),
        (b"BZh91AY&SY", r"compressed \(bzip2 -d\)"),
        (b"\xfd7zXZ\0", r"compressed \(xz -d\)"),
        (b"%PDF-1.7\n", "a PDF"),
        (b"PAR1\x15", "parquet"),
    ],
)
def test_files_that_are_not_text_are_named(start: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(start + b" and so on\n")
    with pytest.raises(DataError, match=message):
        list(read_sentences(tmp_path / "a.txt", Reading(), []))


def test_other_extensions_are_refused_with_advice(tmp_path: Path) -> None:
    for name, advice in (("a.txt.gz", "gzip -d"), ("a.json", "jq"), ("README", "rename it to .txt")):
        (tmp_path / name).write_text("[]")
        with pytest.raises(UsageError, match=f"unknown extension .* expected one of .txt.*; .*{advice}"):
            find_files(tmp_path / name)


def test_other_encodings_are_named(tmp_path: Path) -> None:
    """Cyrillic letters in UTF-16 are valid UTF-8."""
    (tmp_path / "a.txt").write_bytes("Все семьи похожи. ".encode("utf-16"))
    (tmp_path / "b.txt").write_bytes("Все семьи похожи. ".encode("utf-16-le"))
    for name, message in (("a", r"in UTF-16 \(iconv -f utf-16 -t utf-8\)"), ("b", "zero bytes, as in UTF-16")):
        with pytest.raises(DataError, match=f"{name}.txt: the file .*{message}"):
            list(read_sentences(tmp_path / f"{name}.txt", Reading(), []))


def test_key_of_the_texts_is_not_guessed_from_another_object(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "17"}\n{"id": "18", "text": "One."}\n')
    with pytest.raises(DataError, match=r"line 2 has a key 'text', but texts are read from 'id', .*--column"):
        list(read_rows(tmp_path / "a.jsonl"))
    assert [row.text for row in read_rows(tmp_path / "a.jsonl", "id")] == ["17", "18"]


def test_wrong_settings() -> None:
    with pytest.raises(UsageError, match="layout='pages'"):
        Reading("pages")  # type: ignore


@pytest.mark.parametrize("layout", ["lines", "paragraphs", "running"])
@pytest.mark.parametrize("extension", [".txt", ".csv"])
def test_parts_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout, extension: str) -> None:
    """Documents, sentences and lines are equal for parts of any size; reading can continue after each."""
    rng = np.random.default_rng(3)
    words = "Mr. Smith saw it. Then he é went! 1. 漢字 home".split()
    text = ""
    for _ in range(400):
        text += " ".join(rng.choice(words, rng.integers(1, 9))) + "\n" * int(rng.choice([1, 1, 1, 2, 3]))
    text = "\n\n" + text + "x" * 700 + " " + "ÿ" * 700 + "\n\n \nEnd."
    path = tmp_path / f"a{extension}"
    if extension == ".txt":
        path.write_text(text, encoding="utf-8")
    else:
        write(path, ["", *text.split("\n\n"), " "])
    reading = Reading(layout)
    whole = list(read_sentences(path, reading))
    monkeypatch.setattr("bertkit.corpus.documents._PART_BYTES", 300)
    monkeypatch.setattr("bertkit.corpus.documents._AHEAD_BYTES", 90)
    in_parts = list(read_sentences(path, reading))
    if extension == ".csv":
        assert in_parts == whole
    else:  # the sentence of the long words is cut, not lost
        long = [one.starts_document for one in in_parts if "x" * 99 in one.text or "ÿ" in one.text]
        first = [one.starts_document for one in in_parts].index(long[0], whole.index(whole[-2]))
        assert len(long) > 5 and not any(long[1:])
        assert in_parts[:first] == whole[:-2] and in_parts[first + len(long) :] == whole[-1:]
        assert "".join(one.text for one in in_parts[first:-1]).replace(" ", "") == whole[-2].text.replace(" ", "")
    parts = list(read_parts(path, reading))
    assert len(parts) > 20 or extension == ".csv"
    for part, following in pairwise(parts):
        again = next(read_parts(path, reading, part.position, part.line))
        assert again.data.tobytes() == following.data.tobytes()
        assert (again.starts_document, again.position, again.line) == (
            following.starts_document, following.position, following.line,
        )  # fmt: skip
        assert again.lines.tolist() == following.lines.tolist()


def test_megabyte_without_a_space(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("é" * 2_000_000, encoding="utf-8")
    for layout in ("lines", "running"):
        sizes = [len(part.data) for part in read_parts(path, Reading(layout))]
        assert sum(sizes) == 4_000_000 and max(sizes) <= 1 << 20 and all(size % 2 == 0 for size in sizes)
    assert len(list(groupby(read_sentences(path, Reading("lines")), lambda one: one.starts_document))) == 2
