"""A folder of forty kinds of files: the text, title and headings of each; damaged and hostile files; chosen files."""

import bz2
import gzip
import json
import lzma
import mailbox
import os
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import bertkit
from bertkit.cli import run
from bertkit.documents import readers
from bertkit.documents.document import Document, SkippedFile
from bertkit.documents.passages import cut_passages
from bertkit.documents.readers import READERS, kind_of, read_documents, reading
from bertkit.documents.sources import FileOptions, find_sources
from bertkit.errors import DependencyError, UsageError
from bertkit.search import Equal
from bertkit.search.index import Index

W, A, T = (f'xmlns:{name}="urn:{name}"' for name in "wat")
OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
CORE = '<p:coreProperties xmlns:p="urn:p" xmlns:dc="urn:dc"><dc:title>{}</dc:title></p:coreProperties>'


class Expected(NamedTuple):
    """What a document of the folder is read as."""

    text: str
    title: str = ""
    headings: tuple[str, ...] = ()


def pack(path: Path, parts: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)


def write_office(root: Path) -> dict[str, Expected]:
    word = "<w:p><w:pPr><w:pStyle w:val='{}'/><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>"
    styles = "<w:style w:styleId='berschrift2'><w:name w:val='heading 2'/></w:style>"
    row = "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>"
    body = (
        word.format("berschrift2", "Fruit"),
        word.format("Normal", "Plums &amp;</w:t><w:tab/><w:t xml:space='preserve'> pears"),
        row.format(word.format("x", "one"), word.format("x", "two")),
        word.format("x", "Box<w:instrText>PAGE</w:instrText>"),
    )
    pack(root / "word.docx", {
        "docProps/core.xml": CORE.format("A letter"),
        "word/styles.xml": f"<w:styles {W}>{styles}</w:styles>",
        "word/document.xml": f"<w:document {W}><w:body>{''.join(body)}</w:body></w:document>",
        "word/footnotes.xml": f"<w:footnotes {W}>{word.format('x', 'A note.')}</w:footnotes>",
    })  # fmt: skip
    slide = f"<a:sld {A}><a:p><a:r><a:t>{{}}</a:t></a:r></a:p><a:p><a:r><a:t>Point.</a:t></a:r></a:p></a:sld>"
    pack(root / "talk.pptx", {
        "docProps/core.xml": CORE.format("A talk"),
        "ppt/slides/slide10.xml": slide.format("Tenth"),
        "ppt/slides/slide2.xml": slide.format("Second"),
        "ppt/notesSlides/notesSlide2.xml": f"<a:n {A}><a:p><a:t>Say it.</a:t></a:p></a:n>",
    })  # fmt: skip
    cells = (
        "<row><c t='s'><v>1</v></c><c t='inlineStr'><is><t>inline</t></is></c><c><v>2.5</v></c></row>"
        "<row><c s='1'><v>45292</v></c><c s='2'><v>45292.75</v></c><c t='b'><v>1</v></c></row>"
    )
    pack(root / "sums.xlsx", {
        "xl/workbook.xml": "<workbook xmlns:r='urn:r'><sheets><sheet name='Sales' r:id='r7'/></sheets></workbook>",
        "xl/_rels/workbook.xml.rels": "<R><Relationship Id='r7' Target='worksheets/sheet3.xml'/></R>",
        "xl/sharedStrings.xml": "<sst><si><t>a</t></si>"
        "<si><r><t>plum</t></r><r><t>s</t></r><rPh><t>x</t></rPh></si></sst>",
        "xl/styles.xml": "<s><numFmts><numFmt numFmtId='164' formatCode='[Red]yyyy\\-mm'/></numFmts>"
        "<cellXfs><xf numFmtId='0'/><xf numFmtId='14'/><xf numFmtId='164'/></cellXfs></s>",
        "xl/worksheets/sheet3.xml": f"<worksheet><sheetData>{cells}</sheetData></worksheet>",
    })  # fmt: skip
    text = (
        f"<o:document xmlns:o='{OFFICE}:office:1.0' xmlns:t='{OFFICE}:text:1.0' xmlns:b='{OFFICE}:table:1.0'><o:text>"
        "<t:tracked-changes><t:p>deleted</t:p></t:tracked-changes><t:h t:outline-level='1'>Fruit</t:h>"
        "<t:p>Plums<t:tab/><t:span>are<t:s/>blue</t:span>.<t:line-break/>So.</t:p>"
        "<b:table-row><b:table-cell><t:p>one</t:p></b:table-cell><b:table-cell><t:p>two</t:p></b:table-cell>"
        "</b:table-row></o:text></o:document>"
    )
    meta = f"<o:meta xmlns:o='{OFFICE}:office:1.0' xmlns:d='urn:d'><d:title>An open letter</d:title></o:meta>"
    pack(root / "open.odt", {"content.xml": text, "meta.xml": meta})
    pack(root / "sums.ods", {"content.xml": text})
    page = "<html xmlns='http://www.w3.org/1999/xhtml'><body><h1>{0}</h1><p>Text of {0}.</p></body></html>"
    pack(root / "book.epub", {
        "META-INF/container.xml": "<c><rootfiles><rootfile full-path='OPS/a.opf'/></rootfiles></c>",
        "OPS/a.opf": "<package xmlns:dc='urn:dc'><metadata><dc:title>A book</dc:title></metadata><manifest>"
        "<item id='2' href='text/two%20a.xhtml'/><item id='1' href='one.xhtml'/></manifest>"
        "<spine><itemref idref='1'/><itemref idref='2'/></spine></package>",
        "OPS/text/two a.xhtml": page.format("Two"),
        "OPS/one.xhtml": page.format("One"),
    })  # fmt: skip
    opened = "Fruit\n\nPlums\tare blue.\nSo.\n\none\ttwo"
    return {
        "word.docx": Expected("Fruit\n\nPlums &\t pears\n\none\ttwo\n\nBox\n\nA note.", "A letter", ("Fruit",)),
        "talk.pptx": Expected("Second\n\nPoint.\n\nSay it.\n\nTenth\n\nPoint.", "A talk", ("Second", "Tenth")),
        "sums.xlsx": Expected("Sales\nplums\tinline\t2.5\n2024-01-01\t2024-01-01 18:00\t1", "", ("Sales",)),
        "open.odt": Expected(opened, "An open letter", ("Fruit",)),
        "sums.ods": Expected(opened, "", ("Fruit",)),
        "book.epub": Expected("One\n\nText of One.\n\nTwo\n\nText of Two.\n\n", "A book", ("One", "Two")),
    }


def write_messages(root: Path) -> dict[str, Expected]:
    message = (
        b"From: Ann <a@example.org>\nSubject: =?utf-8?q?Caf=C3=A9?=\nMIME-Version: 1.0\n"
        b"Content-Type: text/plain; charset=iso-8859-1\n\nTea or caf\xe9?\n"
    )
    html = b"Subject: Page\nContent-Type: text/html; charset=utf-8\n\n<p>Tea<script>no</script>\n"
    (root / "one.eml").write_bytes(message)
    (root / "page.eml").write_bytes(html)
    box = mailbox.mbox(root / "all.mbox")
    for one in (message, html):
        box.add(one)
    box.close()
    first = Expected("From: Ann <a@example.org>\nSubject: Café\n\nTea or café?\n", "Café")
    second = Expected("Subject: Page\n\nTea", "Page")
    return {"one.eml": first, "page.eml": second, "all.mbox#1": first, "all.mbox#2": second}


def write_texts(root: Path) -> dict[str, Expected]:
    marked = "# On\n\nText.\n"
    rst = "====\nPart\n====\n\nOn\n==\n\nText.\n\nno\nheading\n\nOff\n==="
    tex = "\\title{Fruit}\n\\section{On}\\label{on}\nText.\n\\subsection*{Off}\n"
    code = (
        '"""A module."""\n\n@cached\nclass Plum:\n    def eat(self):\n        return 1\n\n    color = 2\n\nleft = 3\n'
    )
    same = {  # read as they are
        **{
            name: Expected("Plain text, é.\n")
            for name in ("a.txt", "b.log", "README", "LICENSE", "copyright", "Makefile")
        },
        **{
            f"c.{kind}": Expected(f"{kind} é")
            for kind in "json yaml toml ini xml sql js ts java c h cpp go rs sh rb css".split()
        },
        **{f"d.{kind}": Expected(marked, "", ("On",)) for kind in ("md", "markdown")},
        "notes.unknown": Expected("Text of an unknown kind."),
        "e.rst": Expected(rst, "", ("Part", "On", "Off")),
        "f.tex": Expected(tex, "", ("Fruit", "On", "Off")),
        "g.py": Expected(code, "", ("class Plum", "def eat", "", "")),
    }
    for name, expected in same.items():
        (root / name).write_text(expected.text, encoding="utf-8")
    page = "<title>A page</title><h1>On</h1><p>Tea</p>"
    for name in ("h.html", "i.htm", "j.xhtml"):
        (root / name).write_text(page)
    (root / "k.srt").write_text(
        "1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>Good</i> day.\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n7\r\n"
    )
    (root / "l.vtt").write_text(
        "WEBVTT - a\nKind: x\n\nNOTE no\n\nfirst\n00:01.000 --> 00:02.000 line:1\n<v Ann>Good day.\n\n"
        "00:03.000 --> 00:04.000\n7\n"
    )
    cells = [
        {"cell_type": "markdown", "source": ["# On\n", "Text."]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"text": "never"}]},
    ]
    (root / "m.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    man = (
        '.\\" comment\n.TH GIT 1 2026\n.SH "NAME"\ngit \\- the \\fIstupid\\fR tracker\n.SS Options\n'
        '.TP 4\n.B \\-x " y"\nRun \\(lqit\\(rq.\n.br\nEnd\n'
    )
    (root / "git.1").write_text(man)
    (root / "git-log.1.gz").write_bytes(gzip.compress(man.encode()))
    (root / "release.2").write_text("Not a manual page.")
    (root / "n.txt.gz").write_bytes(gzip.compress("Packed é.".encode()))
    (root / "o.txt.bz2").write_bytes(bz2.compress(b"Packed."))
    (root / "p.csv.xz").write_bytes(lzma.compress(b"text,n\nA row.,1\n"))
    (root / "q.jsonl").write_text('{"text": "A row."}\n')
    (root / "r.csv").write_text("text,n\nA row.,1\n")
    (root / "s.tsv").write_text("text\tn\nA row.\t1\n")
    page_of_git = "NAME\n\ngit - the stupid tracker\n\nOptions\n\n-x  y\nRun “it”.\n\nEnd"
    row = Expected("A row.")
    return same | {
        **dict.fromkeys(("h.html", "i.htm", "j.xhtml"), Expected("On\n\nTea", "A page", ("On",))),
        **dict.fromkeys(("git.1", "git-log.1.gz"), Expected(page_of_git, "GIT 1", ("NAME", "Options"))),
        "k.srt": Expected("Good day.\n7"),
        "l.vtt": Expected("Good day.\n7"),
        "m.ipynb": Expected("# On\nText.\n\nprint(1)\n\n", "", ("On",)),
        "release.2": Expected("Not a manual page."),
        "n.txt.gz": Expected("Packed é."),
        "o.txt.bz2": Expected("Packed."),
        **dict.fromkeys(("p.csv.xz#2", "q.jsonl#1", "r.csv#2", "s.tsv#2"), row),
    }


def read(*paths: str | Path, options: FileOptions | None = None) -> tuple[dict[str, Document], list[SkippedFile]]:
    skipped: list[SkippedFile] = []
    documents = [
        document
        for source in find_sources(paths, skipped, options or FileOptions())
        for document in read_documents(source, None, skipped)
    ]
    assert len({(one.id, one.offset) for one in documents}) == len(documents)
    return {one.id: one for one in documents}, skipped


def test_forty_kinds_of_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path("mixed")
    root.mkdir()
    expected = write_office(root) | write_messages(root) | write_texts(root)
    assert len({Path(path).suffix for path in root.iterdir()}) >= 40
    kinds = {kind_of(path.name) or "text" for path in root.iterdir()}
    assert {READERS[kind] for kind in kinds} == set(READERS.values()) - {READERS["pdf"], READERS["rtf"]}
    documents, skipped = read(root)
    assert skipped == [] and documents.keys() == {f"mixed/{name}" for name in expected}
    for name, (text, title, headings) in expected.items():
        document = documents[f"mixed/{name}"]
        assert (document.text, document.title) == (text, title), name
        assert tuple(heading for _, _, heading in document.headings) == headings, name
        for start, _, heading in document.headings:
            assert not heading or heading.split()[-1] in document.text[start:].lstrip().split("\n\n")[0], name
        assert document.metadata["source"] == f"mixed/{name.partition('#')[0]}"


def test_passages_of_python_are_named_by_class_and_function(tmp_path: Path) -> None:
    write_texts(tmp_path)
    (document,) = read(tmp_path / "g.py")[0].values()
    passages = [(one.context, one.text) for one in cut_passages(document)]
    assert passages == [
        ("", '"""A module."""'),
        ("", "@cached\nclass Plum:"),
        ("class Plum: ", "def eat(self):\n        return 1"),
        ("class Plum: ", "color = 2"),
        ("", "left = 3"),
    ]


@pytest.mark.parametrize(
    "name, content, text, encoding",
    [
        ("a.html", b"<meta charset='iso-8859-2'><p>Za\xbf\xf3\xb3\xe6", "Zażółć", ""),
        ("a.html", "<meta charset=koi8-r><p>Сон".encode("koi8-r"), "Сон", ""),
        ("a.html", b"<meta charset='iso-8859-1'><p>\x93tea\x94", "“tea”", ""),  # as browsers do
        ("a.html", "<meta charset='nonsense'><p>é".encode(), "é", ""),
        ("a.xml", "<?xml version='1.0' encoding='gb2312'?>\n<a>茶\u9555</a>".encode("gb18030"), "<a>茶\u9555</a>", ""),
        ("a.xml", "<?xml version='1.0' encoding='utf-16'?>\n<a>é</a>".encode(), "<a>é</a>", ""),  # it cannot be
        ("a.py", b"# -*- coding: latin-1 -*-\nx = '\xe9'", "x = 'é'", ""),
        ("a.tex", b"\\usepackage[latin1]{inputenc}\n\xe9", "é", ""),
        ("a.md", "<meta charset='koi8-r'> in text, é\n".encode(), "é", ""),  # no declaration
        ("a.txt", "\ufeffé".encode(), "é", ""),
        ("README", "Сон".encode("utf-16"), "Сон", ""),
        ("a.log", "naïve café, déjà vu: à la carte\n".encode("cp1252"), "à la carte", "cp1252"),
        ("a.log", "Все счастливые семьи похожи друг на друга\n".encode("cp1251"), "семьи", "cp1251"),
        (
            "README",
            "幸福な家庭はみな似ているが、不幸な家庭はそれぞれに不幸である。すべてが混乱していた。オブロンスキー家では、妻が夫の浮気を知った。".encode(
                "cp932"
            ),
            "幸福",
            "cp932",
        ),
    ],
)
def test_encodings(
    tmp_path: Path, name: str, content: bytes, text: str, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_bytes(content)
    documents, skipped = read(tmp_path)
    assert not skipped and text in documents[str(tmp_path / name)].text
    assert not documents[str(tmp_path / name)].text.startswith("\ufeff")
    guesses = [f"{tmp_path / name}: not UTF-8, read as {encoding}, which is a guess"] if encoding else []
    assert caplog.messages == guesses


@pytest.mark.parametrize(
    "encoding, message", [("utf-16", ""), ("cp1252", "not UTF-8, read as cp1252, which is a guess")]
)
def test_tables_of_spreadsheets(tmp_path: Path, encoding: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.tsv").write_bytes("text\tn\r\nÀ la carte, déjà vu\t1\r\ncrème brûlée\t2\r\n".encode(encoding))
    documents, skipped = read(tmp_path)
    assert [one.text for one in documents.values()] == ["À la carte, déjà vu", "crème brûlée"] and not skipped
    assert [text.partition(": ")[2] for text in caplog.messages] == [message] * bool(message)
    (tmp_path / "a.tsv").write_bytes("texts\tn\r\né\t1\r\n".encode(encoding))
    assert [one.why for one in read(tmp_path)[1]] == [
        f"{tmp_path / 'a.tsv'} has no column 'text', it has texts, n: choose one with --column"
    ]


def table(path: Path, text: str, column: str | None = None) -> tuple[list[Document], list[str]]:
    path.write_text(text)
    skipped: list[SkippedFile] = []
    (source,) = find_sources([path], [])
    return list(read_documents(source, column, skipped)), [one.why for one in skipped]


def test_columns_of_tables_are_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "text,price,zip,row,row_,,day\nTea.,12.50,01234,a,b,x,2026-01-31\n,3,1,,,,\nMilk.,-3,1,,,,\nJuice.,?,,,,,\n"
    documents, skipped = table(Path("a.csv"), rows)
    assert not skipped and [one.metadata for one in documents] == [
        {"source": "a.csv", "row": 2, "price": "12.50", "zip": "01234", "row_": "a", "row__": "b", "day": "2026-01-31"},
        {"source": "a.csv", "row": 3, "price": "3", "zip": "1"},
        {"source": "a.csv", "row": 4, "price": "-3", "zip": "1"},
        {"source": "a.csv", "row": 5, "price": "?"},
    ]
    monkeypatch.setattr("bertkit.documents.readers.records._ROWS_OF_SAMPLE", 3)
    documents, _ = table(Path("a.csv"), rows)
    assert [one.metadata["price"] for one in documents] == [12.5, 3, -3, "?"]
    values = {"title": "T", "offset": 3, "tags": ["a", 1], "none": None, "nan": float("nan"), "long": "x" * 1001}
    caplog.clear()
    (document,), skipped = table(Path("b.jsonl"), json.dumps({"text": "Tea.", "context": "C", "deep": {}} | values))
    assert document.title == "" and not skipped and document.metadata == {
        "source": "b.jsonl", "row": 1, "context_": "C", "title": "T", "offset": 3, "tags": ["a", 1],
    }  # fmt: skip
    assert caplog.messages == ["b.jsonl: not stored as metadata: deep, long"]
    frame = pd.DataFrame(
        {"text": ["Tea."], "day": pd.to_datetime(["2026-01-31"]), "n": [7], "tags": [["a"]], "raw": [b""]}
    )
    frame.to_parquet("c.parquet")
    (source,) = find_sources(["c.parquet"], [])
    (document,) = read_documents(source, None, [])
    assert document.metadata == {
        "source": "c.parquet", "row": 1, "day": "2026-01-31T00:00:00", "n": 7, "tags": ["a"],
    }  # fmt: skip


def test_each_table_has_its_columns_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    sentence = "The soup was hot and good."
    for column, text, texts, message in (
        ("title,body", '{"body": "B", "title": "A"}\n{"body": "C", "title": null}\n', ["A\n\nB", "C"], ""),
        ("title,body", '{"body": "B", "text": "A"}', ["B"], "a.jsonl: no column title; the texts are in body"),
        ("title,body", '{"title,body": "B", "body": "A"}', ["B"], ""),
        (
            None,
            json.dumps({"name": "tea", "note": sentence}),
            [sentence],
            "a.jsonl: texts of the column 'note', which is a guess: --column names another",
        ),
        (None, '{"a": "only"}\n{"a": "one"}', ["only", "one"], ""),
        (None, '{"a": 3}\n{"a": "x", "text": "Tea."}', ["Tea."], ""),
    ):
        caplog.clear()
        documents, _ = table(Path("a.jsonl"), text, column)
        assert [one.text for one in documents] == texts and caplog.messages == [message] * bool(message)
    for column, text, why in (
        ("title,body", "text,a\nx,y\n", "a.csv has no column 'title,body', it has text, a: choose one with --column"),
        (
            None,
            f"one,two\n{sentence},{sentence}\n",
            "a.csv has no column 'text', it has one, two: choose one with --column",
        ),
        (None, f"one,one,two\n{sentence},{sentence},x\n", "a.csv names the column 'one' twice: rename or remove one"),
        (",", "text,\nx,y\n", "a.csv has no column ',', it has text: choose one with --column"),
        (None, f"id,\n1,{sentence}\n", "a.csv has no column 'text', it has id: choose one with --column"),
    ):
        assert table(Path("a.csv"), text, column) == ([], [why])
    assert [one.text for one in table(Path("a.jsonl"), "no\n" * 100 + '{"text": "Tea.", "a": 1}')[0]] == ["Tea."]
    rows = '{"text": "Tea."}\n{"a": 1}\n{"text": null}\n{"text": 3}\nno\n'
    documents, skipped = table(Path("a.jsonl"), rows)
    assert len(documents) == 1 and skipped == [
        "a.jsonl, line 2 has no column 'text', it has a: choose one with --column",
        "a.jsonl, line 3: 'text' is NoneType (None), expected text",
        "a.jsonl, line 4: 'text' is int (3), expected text",
        "a.jsonl, line 5 is not JSON: no; expected an object on each line",
    ]


def test_a_few_damaged_bytes_do_not_change_the_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Ünïcode wörds ärë hërë.\n".encode() * 5 + b"\xff end\n")
    documents, skipped = read(tmp_path)
    (document,) = documents.values()
    assert document.text.endswith("hërë.\n\ufffd end\n") and "ÿ" not in document.text
    assert [(one.why, one.is_part) for one in skipped] == [("some bytes are not UTF-8, and are lost", True)]


def test_bad_files_are_listed_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading, "LARGEST_WHOLE", 100_000)
    monkeypatch.setattr(readers, "_LARGEST_UNPACKED", 1_000_000)
    root = Path("bad")
    root.mkdir()
    write_office(root)
    good = len(list(root.iterdir()))
    whole = (root / "word.docx").read_bytes()
    (root / "cut.docx").write_bytes(whole[: len(whole) // 2])
    pack(root / "other.docx", {"word/document.xml": "<w:document"})
    pack(root / "none.epub", {"a.txt": "no container"})
    entities = "".join(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 12))
    pack(root / "laughs.odt", {"content.xml": f"<!DOCTYPE a [<!ENTITY e0 'ha'>{entities}]><a>&e11;</a>"})
    container = "<c><rootfile full-path='a.opf'/></c>"
    item = "<package><item id='1' href='a.html'/><itemref idref='1'/></package>"
    pack(root / "bomb.epub", {"META-INF/container.xml": container, "a.opf": item, "a.html": "<p>a</p>" * 50_000})
    (root / "bomb.txt.gz").write_bytes(gzip.compress(b"a" * 2_000_000))
    (root / "cut.txt.gz").write_bytes(gzip.compress(os.urandom(2_000))[:500])
    (root / "bad.ipynb").write_text("{")
    (root / "empty.mbox").write_text("no message\n")
    (root / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (root / "deep.py").write_text("(" * 5_000)
    (root / "long.mbox").write_text("From a\nSubject: a\n\nText.\n\nFrom b\nSubject: b\n\n" + "b" * 200_000)
    documents, skipped = read(root)
    reasons = {one.path.removeprefix("bad/"): one.why for one in skipped}
    assert len(documents) == good + 2 and documents["bad/deep.py"].headings == ()
    for name, why in {
        "cut.docx": "cannot be read as docx: File is not a zip file",
        "other.docx": "cannot be read as docx: unclosed token",
        "none.epub": "cannot be read as epub: ",
        "laughs.odt": "cannot be read as odt: limit on input amplification factor",
        "bomb.epub": "it unpacks to more than 100,000 bytes",
        "bomb.txt.gz": "it unpacks to more than 1,000,000 bytes",
        "cut.txt.gz": "cannot be read as txt: Compressed file ended",
        "bad.ipynb": "cannot be read as ipynb: Expecting property name",
        "empty.mbox": "no messages: expected lines that begin with 'From '",
        "long.mbox": "message 2 cannot be read: it has more than 100,000 bytes",
        "picture.png": "binary, and of unknown extension '.png'",
    }.items():
        assert reasons.pop(name).startswith(why) and "\n" not in why, name
    assert not reasons


def test_words_of_pdf_are_whole_where_lines_divide_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pypdf = pytest.importorskip("pypdf", reason="pypdf is not installed")
    texts = [
        "An electro-\nmagnetic wave, state-of-\nthe-art, self-\nmade, Electro\u00ad\nmagnetic.",
        "Electromagnetic.",
    ]
    monkeypatch.setattr(pypdf.PageObject, "extract_text", lambda _: texts.pop(0))
    writer = pypdf.PdfWriter()
    for _ in texts:
        writer.add_blank_page(99, 99)
    writer.write(tmp_path / "book.pdf")
    (source,) = find_sources([tmp_path / "book.pdf"], [])
    first, second = read_documents(source, None, [])
    assert first.text == "An electromagnetic wave, state-of-\nthe-art, self-\nmade, Electromagnetic.\n\n"
    assert second.offset == len(first.text) and second.metadata["page"] == 2


def test_pdf_of_pictures_is_listed(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf", reason="pypdf is not installed")
    writer = pypdf.PdfWriter()
    for _ in range(2):
        writer.add_blank_page(200, 200)
    writer.write(tmp_path / "scan.pdf")
    _, skipped = read(tmp_path)
    assert [one.why for one in skipped] == [
        "no text in its 2 pages: if they are pictures of text, recognize it (ocrmypdf)"
    ]


def test_libraries_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.rtf").write_text("{\\rtf1 Tea}")
    monkeypatch.setitem(__import__("sys").modules, "striprtf.striprtf", None)
    _, skipped = read(tmp_path)
    assert [one.why for one in skipped] == ["rtf needs striprtf: pip install 'bertkit[documents]'"]
    (source,) = find_sources([tmp_path], [])
    with pytest.raises(DependencyError, match="striprtf"):
        list(read_documents(source, None, [], must_read=True))


@pytest.mark.parametrize(
    "name, piece",
    [("a.tex", "\\section{a} "), ("a.tex", "\\section{a}" + " " * 9), ("a.1", ".TH a 1 \\["), ("a.1", "\\["),
     ("a.srt", "<b"), ("a.vtt", "1:"), ("a.rst", "= "), ("a.py", "1+"), ("a.py", "x = -"), ("a.html", "<p "),
     ("a.xml", "<?xml ")],
)  # fmt: skip
def test_hostile_texts_take_linear_time(tmp_path: Path, name: str, piece: str) -> None:
    (tmp_path / name).write_text(".TH a 1\n" * (name == "a.1") + piece * 200_000 + "x")
    started = time.process_time()
    documents, _ = read(tmp_path / name)
    assert documents and time.process_time() - started < 5


def test_rich_text(tmp_path: Path) -> None:
    pytest.importorskip("striprtf", reason="striprtf is not installed")
    (tmp_path / "a.rtf").write_text(r"{\rtf1\ansi\ansicpg1252 Caf\'e9 {\b bold}\par Next}")
    documents, skipped = read(tmp_path)
    assert [one.text for one in documents.values()] == ["Café bold\nNext"] and not skipped


def test_attachments_are_listed(tmp_path: Path) -> None:
    from email.message import EmailMessage

    message = EmailMessage()
    message["Subject"] = "Files"
    message.set_content("See below.")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="a.pdf")
    (tmp_path / "a.eml").write_bytes(bytes(message))
    documents, skipped = read(tmp_path / "a.eml")
    assert next(iter(documents.values())).text == "Subject: Files\n\nSee below.\n"
    assert skipped[0].why == "attachments of the message are not read: a.pdf" and skipped[0].is_part


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("app/a.md", "app/a.log", "app/keep.log", "app/node_modules/x.md", "app/src/b.txt", "app/src/out/c.md"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"Text of {name}.")
    Path(".git").mkdir()
    Path(".gitignore").write_text("*.log\nnode_modules/\n")
    Path("app/.gitignore").write_text("!keep.log\n/src/out\n")
    return Path("app")


def test_ignored_files_are_not_read(project: Path) -> None:
    documents, skipped = read(project)
    assert sorted(documents) == ["app/a.md", "app/keep.log", "app/src/b.txt"]
    above = os.path.relpath(Path.cwd() / ".gitignore", "/")
    assert {(one.path, one.why) for one in skipped} == {
        ("app/a.log", f"excluded by /{above}"),
        ("app/node_modules/", f"excluded by /{above}"),
        ("app/src/out/", "excluded by app/.gitignore"),
    }
    assert all(one.is_excluded for one in skipped)
    assert list(read("app/a.log")[0]) == ["app/a.log"]  # a file that is given is wanted


def test_files_are_chosen_by_patterns(project: Path) -> None:
    documents, _ = read(project, options=FileOptions(exclude=("src/", "!a.log")))
    assert sorted(documents) == ["app/a.log", "app/a.md", "app/keep.log"]
    documents, skipped = read(project, options=FileOptions(include=("*.md", "src/*.txt")))
    assert sorted(documents) == ["app/a.md", "app/src/b.txt"]
    assert ("app/keep.log", "not included") in [(one.path, one.why) for one in skipped]
    with pytest.raises(UsageError, match=r"Invalid git pattern: '!': expected the name of a file or folder"):
        FileOptions(exclude=("!",))


def test_files_are_read_as_another_kind(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<h1>On</h1>")
    (tmp_path / "b.mystery").write_text("# On\nText.")
    (tmp_path / "c.bin").write_bytes(b"abc\0")
    documents, skipped = read(tmp_path, options=FileOptions(kind="text"))
    assert [one.text for one in documents.values()] == ["<h1>On</h1>", "# On\nText."]
    assert [one.why for one in skipped] == ["binary, not text"]
    documents, _ = read(tmp_path / "b.mystery", options=FileOptions(kind="md"))
    assert next(iter(documents.values())).headings == ((0, 1, "On"),)
    for kind in ("prose", "csv"):
        with pytest.raises(UsageError, match=f"files as '{kind}': expected one of"):
            FileOptions(kind=kind)


def test_links_to_a_file_are_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("Tea.")
    os.link("a.txt", "b.txt")
    Path("c.txt").symlink_to("a.txt")
    documents, skipped = read(".", "a.txt", Path.cwd() / "a.txt")
    assert list(documents) == ["a.txt"]
    assert [(one.path, one.why) for one in skipped] == [(name, "the same file as a.txt") for name in ("b.txt", "c.txt")]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a model of static vectors, in a new working directory."""
    monkeypatch.chdir(tmp_path)
    names = [f"w{number}" for number in range(100)]
    vectors = np.random.default_rng(3).standard_normal((100, 16)).astype(np.float32)
    bertkit.StaticEncoder.of_words(names, vectors).save(tmp_path / "words")
    return tmp_path / "words"


@pytest.mark.full
def test_copies_among_ten_thousand_files_are_embedded_once_and_one_result(words: Path) -> None:
    names = [f"files/{number % 100:02}/{number:05}.txt" for number in range(10_000)]
    for name in names[:100]:
        Path(name).parent.mkdir(parents=True)
    texts = [f"w{number % 97} w{number // 97} text {number}" for number in (each % 7_000 for each in range(10_000))]
    for name, text in zip(names, texts, strict=True):
        Path(name).write_text(text)
    with Index.open("store", words) as index:
        report = index.add("files")
        assert len(report.new) == report.num_passages == len(index) == 10_000 and report.num_embedded == 7_000
        assert not report.skipped
        for mode in ("dense", "lexical", "hybrid"):
            results = index.search("w5 w60 text", 50, mode=mode)
            assert [one.rank for one in results] == list(range(1, 51))
            assert len({one.text for one in results}) == 50
            for one in results:
                copies = sorted(name for name, text in zip(names, texts, strict=True) if text == one.text)
                assert sorted([one.document_id, *one.other_documents]) == copies
        os.remove(names[0])
        Path("files/more.txt").write_text(texts[1])
        report = index.add("files")
        assert (report.removed, report.new, report.num_embedded) == ([names[0]], ["files/more.txt"], 0)
        (result,) = index.search(texts[7_000], 1, where=Equal("source", names[7_000]))
        assert (result.document_id, result.other_documents) == (names[7_000], ())


def test_files_that_are_excluded_later_are_removed(words: Path) -> None:
    for name in ("docs/a.md", "docs/drafts/b.md", "docs/c.log"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("w1 w2.")
    with Index.open("store", words) as index:
        assert len(index.add("docs").new) == 3
        planned = index.add("docs", files=FileOptions(exclude=("drafts/",)), dry_run=True)
        assert planned.removed == ["docs/drafts/b.md"] and len(index) == 3
        report = index.add("docs", files=FileOptions(exclude=("drafts/",), include=("*.md",)))
        assert report.removed == ["docs/c.log", "docs/drafts/b.md"] and len(index) == 1
        assert index.add("docs", files=FileOptions(kind="text", include=("*.md", "*.log"))).changed == ["docs/a.md"]


def test_command_chooses_files(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {"a.md": "# w1\n", "b.html": "<p>w2</p>", "c.txt": "w3", "d.txt": "w3", "e.docx": "no"}.items():
        Path("docs").mkdir(exist_ok=True)
        Path("docs", name).write_text(text)
    Path("docs/f.jsonl").write_text('{"text": 1, "b": 2}\n' * 7)
    arguments = ["index", "docs", "--store", "store", "--exclude", "*.md", "--exclude", "f.*", "--as", "text"]
    assert run([*arguments, "--dry-run"]) == 0 and not Path("store").exists()
    output = capsys.readouterr()
    assert [json.loads(line)["file"] for line in output.out.splitlines()] == [
        f"docs/{name}" for name in ("b.html", "c.txt", "d.txt", "e.docx")
    ]
    assert output.err.splitlines()[1:] == [
        "4 passages in the new and changed files",
        "skipped docs/a.md: excluded by an exclude pattern",
        "skipped docs/f.jsonl: excluded by an exclude pattern",
    ]
    assert run(["index", "docs", "--store", "store", "--dry-run"]) == 0
    output = capsys.readouterr()
    assert "e.docx" not in output.out
    assert output.err.splitlines()[-1] == "skipped 4 more parts of docs/f.jsonl"
    assert "skipped docs/e.docx: cannot be read as docx: File is not a zip file" in output.err
    assert run([*arguments, "--model", str(words)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[:4] == [f"docs/{name}: 1 passages" for name in ("b.html", "c.txt", "d.txt", "e.docx")]
    assert run(["search", "w3", "--store", "store", "-k", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["document"], result["also_in"]) == ("docs/c.txt", ["docs/d.txt"])
    for wrong in (["--as", "prose"], ["--include", "!"]):
        assert run(["index", "docs", "--store", "store", *wrong]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_large_log_takes_little_memory(tmp_path: Path) -> None:
    line = "2026-01-02 03:04:05 INFO worker caf\xe9 is ready\n".encode("cp1252")
    with open(tmp_path / "a.log", "wb") as file:
        for _ in range(64):
            file.write(line * (1_000_000 // len(line)))
    (source,) = find_sources([tmp_path], [])
    tracemalloc.start()
    length = sum(len(document.text) for document in read_documents(source, None, []))
    assert length == source.size and tracemalloc.get_traced_memory()[1] < 12_000_000
    tracemalloc.stop()


def test_one_result_names_copies_whose_names_fit_less(words: Path) -> None:
    Path("docs").mkdir()
    for name in ("apple.txt", "zebra.txt", "other.txt"):
        Path("docs", name).write_text("w1 numbers of w2" if name != "other.txt" else "w3 of w4")
    with Index.open("store", words) as index:
        index.add("docs")
        for mode in ("lexical", "hybrid", "dense"):
            (result,) = index.search("apple numbers w1", 1, mode=mode)
            assert {result.document_id, *result.other_documents} == {"docs/apple.txt", "docs/zebra.txt"}
        (result,) = index.search("numbers", 1, mode="lexical", where=Equal("source", "docs/zebra.txt"))
        assert (result.document_id, result.other_documents) == ("docs/zebra.txt", ())
