"""Files to documents to passages: formats, offsets, headings, and files that cannot be read."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from bertkit.documents.document import Document, SkippedFile
from bertkit.documents.passages import PassageOptions, cut_passages, sentence_spans
from bertkit.documents.readers import read_documents, reading
from bertkit.documents.readers.html_text import html_text
from bertkit.documents.readers.text import markdown_headings
from bertkit.documents.sources import find_sources
from bertkit.errors import DataError, UsageError
from bertkit.search.snippets import snippet_of

TEXT = (
    "Mr. Smith went to Washington. He arrived on Jan. 3, late. \u201cWhere is it?\u201d he asked.\n\n"
    "Ünïcode wörds \U0001f600 count as characters. 東京は大きい。とても大きい。 " + "supercalifragilistic " * 9 + "\n"
)


@pytest.mark.parametrize("length, overlap", [(5, 0), (40, 10), (60, 59), (100, 0), (800, 150), (5000, 0)])
@pytest.mark.parametrize("text", [TEXT, TEXT * 7, "", " \n ", "x" * 300, "a\r\nb\r\n\r\nc"])
def test_passages_cover_the_text_at_exact_offsets(text: str, length: int, overlap: int) -> None:
    covered = [False] * len(text)
    previous = -1
    for passage in cut_passages(Document("d", text, offset=1000), PassageOptions(length, overlap)):
        start, end = passage.start - 1000, passage.end - 1000
        assert text[start:end] == passage.text == passage.text.strip()
        assert 0 < len(passage.text) <= length
        assert start > previous
        previous = start
        covered[start:end] = [True] * (end - start)
    assert all(is_covered or character.isspace() for is_covered, character in zip(covered, text, strict=True))


def test_passages_overlap_by_whole_sentences() -> None:
    text = "One is here. Two is here. Three is here. Four is here."
    passages = [one.text for one in cut_passages(Document("d", text), PassageOptions(30, 14))]
    assert passages == ["One is here. Two is here.", "Two is here. Three is here.", "Four is here."] or passages == [
        "One is here. Two is here.", "Two is here. Three is here.", "Three is here. Four is here.",
    ]  # fmt: skip


def test_passages_end_at_headings_and_name_them() -> None:
    text = "Before.\n\n# Fruit\n\nApples.\n\n## Stone fruit\n\nPlums.\n\n# Nuts\n\nAlmonds.\n"
    document = Document("d", text, "Food", markdown_headings(text))
    passages = [(one.text, one.context) for one in cut_passages(document, PassageOptions())]
    assert [text.split("\n")[0] for text, _ in passages] == ["Before.", "# Fruit", "## Stone fruit", "# Nuts"]
    assert [context for _, context in passages] == ["Food: ", "Food: ", "Food: Fruit: ", "Food: "]
    long = Document("d", "# Fruit\n\n" + "Apples are good. " * 40, "", ((0, 1, "Fruit"),))
    assert {one.context for one in cut_passages(long, PassageOptions(200, 0))} == {"", "Fruit: "}


def test_headings_of_markdown_with_any_line_end() -> None:
    text = "# One\n\ntext\n\n```\n# code\n```\n\n## Two ##\n\nmore text\n"
    windows = text.replace("\n", "\r\n")
    for given in (text, windows):
        headings = [(given[start:].split()[:2], level, name) for start, level, name in markdown_headings(given)]
        assert headings == [(["#", "One"], 1, "One"), (["##", "Two"], 2, "Two")]


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("# One # two ##  ", "One # two"),
        ("#\tOne\t#\r", "One"),
        ("###### C#", "C"),
        ("# One ## #", "One ##"),
        ("####### seven", None),
        ("#none", None),
        ("# \t ", None),
        ("## ##", None),
    ],
)
def test_marks_after_a_heading_are_not_part_of_it(line: str, heading: str | None) -> None:
    assert [name for _, _, name in markdown_headings(f"x\n{line}\ny")] == ([heading] if heading else [])


def test_code_in_longer_fences_and_code_in_a_line() -> None:
    text = (
        "# One\n````md\n```py\n# no\n```\n# no\n````\n# Two\n```code``` in a line\n# Three\n~~~~\n# no\n~~~~~\n# Four\n"
    )
    assert [heading for _, _, heading in markdown_headings(text)] == ["One", "Two", "Three", "Four"]


def test_sentence_of_a_book_is_cut_in_linear_time() -> None:
    text = "word " * 1_600_000
    started = time.process_time()
    assert sum(1 for _ in cut_passages(Document("a", text), PassageOptions())) == 10_000
    assert time.process_time() - started < 3


def test_headings_are_found_in_linear_time() -> None:
    line, blocks = "# a" + " " * 100_000 + "b", "```\n# no\n```\n# yes\n" * 5_000
    started = time.process_time()
    assert markdown_headings(line) == ((0, 1, line[2:]),)
    assert [name for _, _, name in markdown_headings(blocks)] == ["yes"] * 5_000
    assert time.process_time() - started < 2


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_markdown_in_parts_has_the_headings_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_end: str
) -> None:
    paragraphs = "".join(f"Line {number} is here.\n\n" for number in range(30))
    code = "```\n" + "# no heading, " * 9 + "\n\n# no heading either\n\n" * 9 + "```\n\n"
    sections = ("# Fruit", paragraphs, "## Plums", paragraphs, code, paragraphs, "# Nuts", "Almonds.", "### Deep", "x.")
    text = "\n\n".join(sections).replace("\n", line_end)
    (tmp_path / "a.md").write_bytes(text.encode())
    (source,) = find_sources([tmp_path], [])
    options = PassageOptions(40, 0)
    whole = {one.start: one for one in cut_passages(Document("d", text, "", markdown_headings(text)), options)}
    contexts = {one.context for one in whole.values()}
    assert contexts == {"", "Fruit: ", "Fruit: Plums: ", "Nuts: "}
    monkeypatch.setattr(reading, "PART_LENGTH", 64)
    parts = list(read_documents(source, None, []))
    assert len(parts) > 20 and "".join(part.text for part in parts) == text
    passages = [passage for part in parts for passage in cut_passages(part, options)]
    assert {one.context for one in passages} == contexts
    same = [(one, whole[one.start]) for one in passages if one.start in whole]
    assert len(same) > len(parts) and all(one.context == other.context for one, other in same)


def test_bad_lengths_raise() -> None:
    with pytest.raises(UsageError, match="passage length=0"):
        PassageOptions(0)
    with pytest.raises(UsageError, match="overlap 9: expected at least 0 and less than the length 9"):
        PassageOptions(9, 9)


def test_html() -> None:
    page = html_text(
        "<html><head><title> A  page </title><style>x{}</style></head><body><nav>menu</nav><h1>On &lt;off&gt;</h1>"
        "<p>One <b>two</b>\n three.<br>Four</p><script>no</script><ul><li>a<li>b</ul><h2>Last</h2><pre>x\n  y</pre>"
    )
    assert page.title == "A page"
    assert page.text == "On <off>\n\nOne two three.\n\nFour\n\na\n\nb\n\nLast\n\nx\n  y"
    assert [(page.text[start : start + len(name)], level) for start, level, name in page.headings] == [
        ("On <off>", 1), ("Last", 2),
    ]  # fmt: skip


def test_title_of_an_image_is_not_that_of_the_page() -> None:
    image = "<svg><title>Close menu</title><path/></svg>"
    for page in (f"<head><title>A page</title></head><body>{image}<p>Text.", f"{image}<title>A page</title><p>Text."):
        assert html_text(page) == ("Text.", "A page", [])


def test_heading_of_two_lines_is_one() -> None:
    page = html_text("<h1>Apples<br>and<br/>plums</h1><p>Ripe.<br>Sweet.</p>")
    assert page.text == "Apples and plums\n\nRipe.\n\nSweet." and page.headings == [(0, 1, "Apples and plums")]


def test_menus_inside_menus_are_hidden() -> None:
    page = "<p>One</p><nav>A<nav>B</nav>C<svg><svg></svg>D</svg>E</nav><p>Two</p>"
    assert html_text(page).text == "One\n\nTwo"


def test_a_hidden_element_that_is_not_closed_does_not_hide_the_page() -> None:
    assert html_text("<p>One<nav>menu<svg>x</svg><p>Two<p>Three").text == "One\n\nmenu\n\nTwo\n\nThree"
    assert html_text("<nav>menu<p>One<nav>A</nav>Two").text == "menu\n\nOne\n\nTwo"
    assert html_text("<head><title>A page<body><b>One</b> two") == ("One two", "A page", [])
    assert html_text("<p>One<svg>x<p>Two</svg>Three").text == "OneThree"
    assert html_text("<p>One<script>if (a < b) {<p>no").text == "One"


def test_html_rows_of_tables_are_lines() -> None:
    table = "<table><tr><th>Item<th>Days<tr><td><p>Red <b>shoes</b></p></td><td></td><td>30</td></tr></table>"
    rows = "Item\tDays\n\nRed shoes\t30"
    assert html_text(f"Before{table}After").text == f"Before\n\n{rows}\n\nAfter"
    assert html_text(f"<table><tr><td>Menu<td>{table}<td>B</table>").text == f"Menu\n\n{rows}\n\nB"
    assert html_text("<tr><td><pre>1\n2</pre><td><pre>a\nb</pre>").text == "1\n2\n\na\nb"  # lines of code
    page = "<tr><td>Menu<td><h2>On</h2><tr><td>A<td><p>One.<p>Two."  # tables that lay out a page
    assert html_text(page) == ("Menu\n\nOn\n\nA\n\nOne.\n\nTwo.", "", [(6, 2, "On")])


@pytest.mark.parametrize(
    "attribute, is_whole",
    [("src=x/", False), ("src=/", False), ("a=1 b = x/", False), ('src="x"/', True), ("src=x /", True), ("/", True)],
)
def test_slash_after_a_value_without_quotes_is_part_of_it(attribute: str, is_whole: bool) -> None:
    text = html_text(f"<p>One<script {attribute}>code()</script><p>Two").text
    assert text == ("Onecode()\n\nTwo" if is_whole else "One\n\nTwo")


def test_markup_is_found_as_in_browsers() -> None:
    for markup in ("<!--<p>-->", "<!-- > --!>", "<!-->", "<![if !a]>", "<![a b]>", "<?a b?>", "</>", "</ p>", "<!a"):
        assert html_text(f"One{markup}two<b>").text == ("One" if markup == "<!a" else "Onetwo")
    for tag in ("<b a='>' c=\"'>\">", "<b a=it's>", "<B\nA=b/c>", '<b a=b?c="d>', "<b a = '>'>", '<b "a>', '<b a="c>'):
        assert html_text(f"One{tag}two</b> < 3 <4 &lt;b> &#0000065; &#xD800;").text == "Onetwo < 3 <4 <b> A \ufffd", tag
    assert html_text("<title>The <b> &amp; <i></title><textarea><p></textarea>") == ("<p>", "The <b> & <i>", [])
    assert html_text(f"One <b &#{'9' * 5_000}; &#x{'f' * 5_000};").text == "One <b \ufffd \ufffd"
    zeros = "0" * 5_000
    assert html_text(f"&#{zeros}65;&#x{zeros}41; &#{zeros}; &#{zeros}a; &#X{zeros}").text == "AA \ufffd \ufffda; \ufffd"


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    "piece",
    [
        "<!",
        "<a ",
        "<a b='",
        '<a b="',
        "<a b='c' ",
        "<!--",
        "</a",
        "<?",
        "<![",
        "<title>",
        "<script>",
        "<script></",
        "&#",
    ],
)
def test_hostile_html_takes_linear_time(piece: str) -> None:
    for page in (piece * 30_000, piece * 30_000 + ">", "<nav>" * 20_000 + piece + "</svg>" * 20_000):
        started = time.process_time()
        html_text(page)
        assert time.process_time() - started < 5


def test_html_without_optional_tags() -> None:
    metadata = '<meta charset="utf-8"><link rel="icon" href="x"><style>x{}</style><script>no</script>'
    for start in ("<!doctype html><html>", "<!doctype html><html><head>"):
        for end in ("", "</head>", "</head><body>", "<body>"):
            page = html_text(f"{start}<title>A page</title>{metadata}{end}\n<h1>On</h1><p>One.<p>Two.")
            assert page == ("On\n\nOne.\n\nTwo.", "A page", [(0, 1, "On")])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading, "PART_LENGTH", 64)
    root = Path("docs")
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("\ufeff" + TEXT * 3, encoding="utf-8")
    (root / "sub" / "b.md").write_text("# Title\n\nBody.\n")
    (root / "c.HTML").write_text("<h1>Hi</h1><p>there")
    (root / "d.jsonl").write_text('{"text": "row one"}\nnot json\n{"text": "row three"}\n')
    (root / "e.csv").write_text("text,label\nhello,x\n")
    (root / "f.bin").write_bytes(b"\0\1")
    (root / ".hidden.txt").write_text("never")
    (root / "g.txt").write_bytes(b"PK\0\0" * 9)
    (root / "h.txt").write_bytes("caf\xe9 ".encode("latin-1") * 40)
    (root / "i.pdf").write_bytes(b"%PDF-1.4 broken")
    (root / "j.parquet").write_bytes(b"none")
    (root / "empty.txt").write_text("")
    (root / "k.html").write_text("<title>A page of scripts</title><body><script>draw()</script>")
    (root / "l.csv").write_text("text,label\n")
    (root / "M.CSV").write_text("text,label\nhello,x\n")
    (root / "N.JSONL").write_text('{"text": "row one"}\n')
    (root / "O.TSV").write_text("text\nhello, you\n")
    return root


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be"])
def test_texts_with_a_byte_order_mark_are_read_and_others_named(tmp_path: Path, name: str, encoding: str) -> None:
    (tmp_path / name).write_bytes("<p>Сон\n".encode(encoding))
    skipped: list[SkippedFile] = []
    (source,) = find_sources([tmp_path], skipped)
    texts = [document.text for document in read_documents(source, None, skipped)]
    if encoding == "utf-16-be":  # without a mark
        assert texts == [] and skipped[0].why.startswith("the file has zero bytes, as in UTF-16")
    else:
        assert texts == ["Сон" if name == "a.html" else "<p>Сон\n"] and not skipped


def test_every_format_is_read_and_the_rest_is_listed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    skipped: list[SkippedFile] = []
    texts: dict[str, str] = {}
    for source in find_sources([folder], skipped):
        for document in read_documents(source, None, skipped):
            before = texts.get(document.id, "")
            assert document.offset == len(before)
            texts[document.id] = before + document.text
    assert texts == {
        "docs/a.txt": TEXT * 3,
        "docs/sub/b.md": "# Title\n\nBody.\n",
        "docs/c.HTML": "Hi\n\nthere",
        "docs/d.jsonl#1": "row one",
        "docs/d.jsonl#3": "row three",
        "docs/e.csv#2": "hello",
        "docs/h.txt": "café " * 40,
        "docs/k.html": "",
        "docs/M.CSV#2": "hello",
        "docs/N.JSONL#1": "row one",
        "docs/O.TSV#2": "hello, you",
    }
    reasons = {one.path: one.why for one in skipped}
    assert reasons["docs/f.bin"] == "binary, and of unknown extension '.bin'"
    assert "is not JSON" in reasons["docs/d.jsonl"]
    assert reasons["docs/g.txt"] == "binary, not text"
    assert "docs/h.txt: not UTF-8, read as cp1252, which is a guess" in caplog.messages
    assert "pdf" in reasons["docs/i.pdf"] and "parquet" in reasons["docs/j.parquet"]
    assert reasons["docs/k.html"] == "no text in its 61 bytes" and reasons["docs/l.csv"] == "no text in its 11 bytes"
    assert len(reasons) == 7
    with pytest.raises(DataError, match="absent: no such file or folder"):
        find_sources(["absent"], skipped)


def test_name_that_is_not_utf8_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    for name in (b"docs/caf\xe9.txt", b"docs/caf\xe9.png", b"docs/good.txt"):
        Path(os.fsdecode(name)).write_text("\0" if b"png" in name else "Text.")
    skipped: list[SkippedFile] = []
    assert [source.name for source in find_sources(["docs"], skipped)] == ["docs/good.txt"]
    assert [(one.path, one.why) for one in skipped] == [
        ("docs/caf\\xe9.png", "binary, and of unknown extension '.png'"),
        ("docs/caf\\xe9.txt", "its name is not UTF-8: rename the file"),
    ]


def test_notebook_with_half_a_character_is_listed(tmp_path: Path) -> None:
    cell = {"cell_type": "markdown", "source": ["half \ud83d"]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    skipped: list[SkippedFile] = []
    (source,) = find_sources([tmp_path], skipped)
    assert list(read_documents(source, None, skipped)) == []
    assert "text has a lone surrogate at character 5" in skipped[0].why and skipped[0].path.endswith("a.ipynb")


def test_row_with_half_a_character_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keys.jsonl").write_text('{"text": "one", "\\ud83d": 1, "n": 2}\n')
    (source,) = find_sources(["keys.jsonl"], [])
    assert [one.metadata for one in read_documents(source, "text", [])] == [{"source": "keys.jsonl", "row": 1, "n": 2}]
    assert caplog.messages == ["keys.jsonl: not stored as metadata: \\ud83d"]
    Path("rows.jsonl").write_text('{"text": "one"}\n{"text": "two \\ud83d"}\n{"text": "three \\ud83d\\ude00"}\n')
    skipped: list[SkippedFile] = []
    (source,) = find_sources(["rows.jsonl"], skipped)
    assert [one.text for one in read_documents(source, None, skipped)] == ["one", "three \U0001f600"]
    assert [one.why for one in skipped] == [
        "rows.jsonl, line 2: the text is not valid Unicode: character 5 is an unpaired surrogate"
    ]


def test_pdf_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pypdf = pytest.importorskip("pypdf", reason="pypdf is not installed")
    stream = "BT /F1 12 Tf 10 100 Td (The tide is low.) Tj ET"
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(200, 200)
    generic = pypdf.generic
    content = generic.DecodedStreamObject()
    content.set_data(stream.encode())
    font = generic.DictionaryObject({
        generic.NameObject("/Type"): generic.NameObject("/Font"),
        generic.NameObject("/Subtype"): generic.NameObject("/Type1"),
        generic.NameObject("/BaseFont"): generic.NameObject("/Helvetica"),
    })  # fmt: skip
    fonts = generic.DictionaryObject({generic.NameObject("/F1"): font})
    page[generic.NameObject("/Resources")] = generic.DictionaryObject({generic.NameObject("/Font"): fonts})
    page[generic.NameObject("/Contents")] = content
    writer.write(tmp_path / "a.pdf")
    skipped: list[SkippedFile] = []
    (source,) = find_sources([tmp_path / "a.pdf"], skipped)
    (document,) = read_documents(source, None, skipped)
    assert document.text.strip() == "The tide is low." and document.metadata["page"] == 1 and not skipped
    monkeypatch.setattr(pypdf.PageObject, "extract_text", lambda page: "High \ud835 or \ud83d\ude00 low")
    (document,) = read_documents(source, None, skipped)
    assert document.text.strip() == "High \ufffd or \U0001f600 low" and not skipped


@pytest.mark.parametrize("kind", ["html", "pdf"])
def test_large_files_that_are_read_at_once_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(reading, "LARGEST_WHOLE", 9)
    (tmp_path / f"a.{kind}").write_bytes(b"%PDF-1.4 and more")
    skipped: list[SkippedFile] = []
    (source,) = find_sources([tmp_path], skipped)
    assert list(read_documents(source, None, skipped)) == []
    assert [one.why for one in skipped] == [f"17 bytes: expected at most 9 for {kind}; split the file"]


def test_file_without_line_ends_is_split_into_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PART_LENGTH", 50)
    text = "é" * 333 + " word" * 77 + "\n" + "東" * 100
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (source,) = find_sources([tmp_path], [])
    parts = list(read_documents(source, None, []))
    assert "".join(part.text for part in parts) == text and len(parts) > 10
    assert max(len(part.text) for part in parts) <= 100


def test_snippets_have_the_sentences_that_share_words() -> None:
    text = "Nothing here. " * 20 + "The quick fox jumps. It rests. " + "Nothing again. " * 20
    snippet = snippet_of(text, 500, {"fox": 2.0, "rest": 1.5, "absent": 9.0})
    assert snippet.text == "The quick fox jumps. It rests."
    assert text[snippet.start - 500 : snippet.end - 500] == snippet.text
    assert snippet_of("Only one", 7, {}) == ("Only one", 7, 15)
    for number, end in ((115, 240), (116, 119)):  # two sentences of 240 and of 241 characters
        long = f"Fox {'b' * 114}. Dog {'c' * number}. It rests."
        assert snippet_of(long, 0, {"fox": 2.0, "dog": 1.0}) == (long[:end], 0, end)
    assert snippet_of("", 7, {}) == ("", 7, 7)


def test_sentence_spans_are_characters() -> None:
    spans = [TEXT[start:end] for start, end in sentence_spans(TEXT)]
    assert re.sub(r"\s", "", "".join(spans)) == re.sub(r"\s", "", TEXT)
    assert spans[0] == "Mr. Smith went to Washington." and "とても大きい。" in spans
    assert json.dumps(spans)


def test_sentences_that_fill_a_passage_exactly_share_it() -> None:
    text = f"Fox {'b' * 20}. Dog {'c' * 30}."
    for length, number in ((len(text), 1), (len(text) - 1, 2)):
        passages = list(cut_passages(Document("d", text), PassageOptions(length, 0)))
        assert len(passages) == number and " ".join(one.text for one in passages) == text
