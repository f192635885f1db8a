"""Files of labeled data: every published format, and every kind of bad row."""

import csv
import gzip
import json
import os
import re
from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.corpus.texts import find_files, read_texts
from bertkit.errors import DataError, UsageError
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import ChoiceQuestion, Question, TaggedText, TextExample
from bertkit.tasks.reading import BadRows, read_choices, read_labeled_texts, read_questions, read_tagged
from bertkit.tasks.reading.text_sets import read_text_sets
from bertkit.tasks.words import words_of

# Texts with labels


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def test_sst2_with_the_label_first(shared_data):
    train = list(islice(read_labeled_texts(shared_data / "glue_sst2/train.tsv", "class"), 3))
    assert train[0] == TextExample(
        "hide new secretions from the parental units", None, "0", f"{shared_data}/glue_sst2/train.tsv, line 2"
    )
    dev = list(read_labeled_texts(shared_data / "glue_sst2/dev.tsv", "class", label_names=["0", "1"]))
    assert Counter(example.label for example in dev) == {"1": 444, "0": 428}
    assert dev[0].text == "one long string of cliches ." and dev[0].pair is None


def test_mrpc_with_a_byte_order_mark_and_quotes(shared_data):
    rows = list(read_labeled_texts(shared_data / "mrpc/msr-para-train.tsv", "class"))
    assert len(rows) == 3576 and {row.label for row in rows} == {"0", "1"}
    assert rows[0].text.startswith('Amrozi accused his brother, whom he called "the witness", of')
    lines = (shared_data / "mrpc/msr-para-train.tsv").read_text(encoding="utf-8-sig").split("\n")[1:]
    assert [(row.text, row.pair) for row in rows] == [
        tuple(line.rstrip("\r").split("\t")[3:]) for line in lines if line
    ]
    assert rows[-1].location.endswith("line 3577")


def test_sts_files_without_names(shared_data):
    rows = list(read_labeled_texts(shared_data / "sts_benchmark/sts-train.csv", "number"))
    assert len(rows) == 5749
    assert rows[0] == TextExample(
        "A plane is taking off.",
        "An air plane is taking off.",
        5.0,
        f"{shared_data}/sts_benchmark/sts-train.csv, line 1",
    )
    assert len(list(read_labeled_texts(shared_data / "sts_benchmark/sts-dev.csv", "number"))) == 1500
    bad = BadRows(skip=True)
    rows = list(read_labeled_texts(shared_data / "sts_2012_2016/2016/headlines.test.tsv", "number", bad_rows=bad))
    assert len(rows) == 249 and all(0 <= row.label <= 5 for row in rows)
    assert bad.rows and all("has the target ''" in row.why for row in bad.rows)


def test_banking77_with_line_ends_in_quotes(shared_data):
    names = json.loads((shared_data / "banking77/categories.json").read_text())
    rows = list(read_labeled_texts(shared_data / "banking77/train.csv", "class", label_names=names))
    with open(shared_data / "banking77/train.csv", newline="", encoding="utf-8") as file:
        expected = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    assert [(row.text, row.label) for row in rows] == expected and len(rows) == 10003
    assert any("\n" in row.text for row in rows)


def test_tweets_sick_and_rte(shared_data):
    bad = BadRows(skip=True)
    path = shared_data / "tweet_sentiment_extraction/train.csv"
    tweets = list(read_labeled_texts(path, "class", bad_rows=bad))
    assert len(tweets) == 27480 and {tweet.label for tweet in tweets} == {"positive", "neutral", "negative"}
    assert len(bad.rows) == 1
    with pytest.raises(DataError, match=rf"train.csv, line {bad.rows[0].line} has an empty text in 'text': fill it in"):
        list(read_labeled_texts(path, "class"))
    sick = shared_data / "sick2014/SICK_train.txt"
    (pair,) = islice(read_labeled_texts(sick, "class"), 1)
    assert pair.label == "NEUTRAL" and pair.text.startswith("A group of kids") and pair.pair.startswith("A group of b")
    assert next(read_labeled_texts(sick, "number")).label == 4.5
    rte = list(read_labeled_texts(next((shared_data / "rte_derived").glob("*.jsonl")), "class"))
    assert len(rte) == 3841 and {pair.label for pair in rte} == {"entailment", "not_entailment"} and rte[0].pair


@pytest.mark.parametrize(
    ("name", "content", "kind", "columns", "expected"),
    [
        ("a.csv", "text,label\r\none,x\r\ntwo, y \r\n\r\n", "class", {}, [("one", None, "x"), ("two", None, "y")]),
        ("a.csv", 'label,text\nx,"a ""b"", c"\n', "class", {}, [('a "b", c', None, "x")]),
        ("a.tsv", 'text\tlabel\n"a\tx\nb"\ty\n', "class", {}, [('"a', None, "x"), ('b"', None, "y")]),
        ("a.tsv", "text\na,b\n", None, {}, [("a,b", None, None)]),
        ("a.csv", "premise,hypothesis,gold_label\np,h,e\n", "class", {}, [("p", "h", "e")]),
        ("a.csv", "question,sentence,label\nq,s,e\n", "class", {}, [("q", "s", "e")]),
        ("a.csv", "text,label\na,-\n", "class", {}, [("a", None, "-")]),
        ("a.csv", "a,b,c\n1,2,3\n", "number", {"text": "a", "pair": "b", "label": "c"}, [("1", "2", 3.0)]),
        ("a.csv", "x y,0\nz,1\n", "class", {"text": "1", "label": "2"}, [("x y", None, "0"), ("z", None, "1")]),
        ("a.csv", "text,label\na,x|y \nb,\n", "set", {}, [("a", None, ("x", "y")), ("b", None, ())]),
        ("a.csv", "text,p,q\na,0,1\nb,0,0\n", "set", {"label": "p,q"}, [("a", None, ("q",)), ("b", None, ())]),
        ("a.jsonl", '{"text": "a", "labels": ["x", "y"]}\n', "set", {}, [("a", None, ("x", "y"))]),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n',
            "class",
            {},
            [("a", None, "1"), ("b", None, "0")],
        ),
        ("a.jsonl", '{"text": "a", "label": 2.5, "x": []}\n', "number", {}, [("a", None, 2.5)]),
        (
            "a.tsv",
            "gj04\t1\t\tOur friends.\ngj04\t0\t*\tUs friends.\n",
            "class",
            {},
            [("Our friends.", None, "1"), ("Us friends.", None, "0")],
        ),
        ("a.tsv", "0.5\tone\ttwo\n", "number", {}, [("one", "two", 0.5)]),
        (
            "a.txt",
            "one\ttwo\n\nthree\r\n",
            None,
            {},
            [("one\ttwo", None, None), ("", None, None), ("three", None, None)],
        ),
        ("a.csv", "text,label\n,x\nb,\n", None, {}, [("", None, None), ("b", None, None)]),
        ("a.csv", b"\xef\xbb\xbftext,label\nb,x\n", "class", {}, [("b", None, "x")]),
        ("a.csv", "Text,LABEL\na,x\n", "class", {}, [("a", None, "x")]),
        ("a.csv", "Text,text,label\na,b,x\n", "class", {}, [("b", None, "x")]),
        ("a.csv", "Text,text,label\na,b,x\n", "class", {"text": "Text"}, [("a", None, "x")]),
        ("a.csv", "Phrase,Mood\na,x\n", "class", {"text": "phrase", "label": "Mood"}, [("a", None, "x")]),
        ("a.tsv", "Premise\tHypothesis\tLabel\np\th\te\n", "class", {}, [("p", "h", "e")]),
        ("a.txt", "Text\tLabel\na\tx\n", "class", {}, [("a", None, "x")]),
        (
            "a.jsonl",
            '{"Text": "a", "Label": 1}\n{"Text": "b", "Label": 0}\n',
            "class",
            {},
            [("a", None, "1"), ("b", None, "0")],
        ),
        (
            "a.csv",
            "Text,Question,q\na,0,1\nb,1,0\n",
            "set",
            {"label": "Question,q"},
            [("a", None, ("q",)), ("b", None, ("Question",))],
        ),
    ],
)
def test_tables(write, name, content, kind, columns, expected):
    results = list(read_labeled_texts(write(name, content), kind, columns=columns))
    assert [(example.text, example.pair, example.label) for example in results] == expected


def test_standard_input(monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": io.BytesIO("a\tb\nté\n".encode())}))
    assert [(row.text, row.location) for row in read_labeled_texts("-", None)] == [
        ("a\tb", "standard input, line 1"),
        ("té", "standard input, line 2"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("a.csv", "text,label\na,x\n,y\n", "class", r"a.csv, line 3 has an empty text in 'text': fill it in"),
        (
            "a.csv",
            "text,label\na,x\nb,  \n",
            "class",
            r"line 3 has the label '' in 'label': expected a name; fill it in",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "a", "label": 1.0}\n',
            "class",
            r"line 2 has the label 1.0 in 'label': expected a name or an integer; convert the labels",
        ),
        (
            "a.csv",
            "text,label\na,posit\nb,negative\n",
            "class",
            r"line 2 has the label 'posit', which is not among the 2 known labels \(.*\); did you mean 'positive'\?",
        ),
        (
            "a.tsv",
            "sentence1\tsentence2\tgold_label\na\tb\tneutral\na\tb\t-\n",
            "class",
            r"line 3 has '-' in 'gold_label': the annotators did not agree on a label; remove the row, or skip",
        ),
        (
            "a.csv",
            "text,label\na,zzz\n",
            "class",
            r"not among the 2 known labels \(positive, negative\): correct it, or remove the row$",
        ),
        (
            "a.csv",
            "text,score\na,1\nb,nan\n",
            "number",
            r"line 3 has the target 'nan' in 'score': expected a number; fill it in",
        ),
        ("a.csv", "text,score\na,1\nb,inf\n", "number", r"line 3 has the target 'inf'"),
        ("a.csv", "text,score\na,five\n", "number", r"line 2 has the target 'five'"),
        ("a.csv", "text,score\na,\n", "number", r"line 2 has the target ''"),
        ("a.jsonl", '{"text": "a", "score": NaN}', "number", r"line 1 has the target nan"),
        ("a.jsonl", '{"text": "a", "score": true}', "number", r"line 1 has the target True"),
        ("a.jsonl", '{"text": "a", "score": 1' + "0" * 400 + "}", "number", r"line 1 has the target 1000"),
        ("a.jsonl", '{"text": "a", "label": null}', "class", r"line 1 has the label None"),
        ("a.jsonl", '{"text": "a", "label": 1.5}', "class", r"line 1 has the label 1.5"),
        (
            "a.jsonl",
            '{"text": "a", "label": "positive"}\n{"label": "positive"}',
            "class",
            r"line 2 has no 'text': add it",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": "positive"}\n{"text": 3, "label": "positive"}',
            "class",
            r"line 2: 'text' is int \(3\)",
        ),
        ("a.jsonl", '{"text": "\\ud800", "label": "positive"}', "class", r"line 1: 'text' is not valid Unicode"),
        (
            "a.jsonl",
            '{"text": "a", "label": "positive"}\n{"text": "b", "pair": "c", "label": "positive"}',
            "class",
            r"line 2 has 'text' and 'pair', but the first row has no pair: expected pairs",
        ),
        (
            "a.jsonl",
            '{"sentence": "a", "label": "positive"}\n{"sentence": "b", "question": "c", "label": "positive"}',
            "class",
            r"line 2 has 'question' and 'sentence', but the first row has no pair",
        ),
        ("a.jsonl", '{"text": "a", "label": "positive"}\n[1]', "class", r"line 2 is a JSON list: expected an object"),
        ("a.jsonl", '{"text": "a", "label": "positive"}\n{"text"', "class", r"line 2 is not JSON"),
        ("a.jsonl", '{"text": "a", "labels": ["x", "x"]}', "set", r"line 1 has a label twice in 'labels'"),
        ("a.jsonl", '{"text": "a", "labels": ["positive", ""]}', "set", r"line 1 has the labels .* expected names"),
        ("a.csv", "text,label\na,positive|neutral\n", "set", r"line 2 has the label 'neutral', which is not among"),
        ("a.csv", "text,label\na,x\nb\n", "class", r"line 3 has 1 fields, but the header has 2"),
        (
            "a.tsv",
            "text\tlabel\na\tb\tx\n",
            "class",
            r"line 2 has 3 fields, but the first line has 2: check for extra tabs",
        ),
        ("a.tsv", "text\tlabel\na\tpositive\n\nb\tpositive\n", "class", r"line 3 is empty: remove it"),
        ("a.csv", 'text,label\n"a"b,x\n', "class", r"line 2: "),
        ("a.csv", b"text,label\n\xff\xfe,x\n", "class", r"line 2: byte 0 is not UTF-8; convert the file"),
        ("a.csv", "sentence1,sentence2,label\na,,positive\n", "class", r"line 2 has an empty text in 'sentence2'"),
    ],
)
def test_bad_rows_are_errors_or_skipped(write, name, content, kind, message):
    path = write(name, content)
    names = ["positive", "negative"] if "positive" in message or kind == "set" or "neg" in str(content) else None
    with pytest.raises(DataError, match=message) as error:
        list(read_labeled_texts(path, kind, label_names=names))
    bad = BadRows(skip=True)
    try:
        results = list(read_labeled_texts(path, kind, label_names=names, bad_rows=bad))
    except DataError as none_left:
        results = []
        assert re.search(rf"holds no row that can be used; {len(bad.rows)} skipped, the first: ", str(none_left))
    assert bad.rows and str(bad.rows[0]) == str(error.value)
    assert not {row.line for row in bad.rows} & {int(example.location.rsplit(" ", 1)[1]) for example in results}


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.csv", "", {}, "a.csv is empty"),
        ("a.json", '{\n  "text": "a, b",\n  "label": "c"\n}\n', {}, "line 1 is not JSON: {; expected an object on"),
        ("a.csv", "\ntext,label\na,b\n", {}, "a.csv, line 1 is empty: expected column names"),
        ("a.csv", "text,label\n", {}, "a.csv holds no examples"),
        ("a.jsonl", "\n\n", {}, "a.jsonl holds no examples"),
        ("a.csv", "phrase,mood\na,b\n", {}, "line 1 has no known column name; it has phrase, mood: choose columns"),
        (
            "a.csv",
            "phrase,label\na,b\n",
            {},
            r"no column with a name known for the text \(text, .*choose one with --columns text=NAME",
        ),
        ("a.csv", "text,mood\na,b\n", {}, r"no column with a name known for the label \(label, "),
        (
            "a.csv",
            "text,sentiment,category\na,b,c\n",
            {},
            "has category and sentiment: choose one with --columns label=NAME",
        ),
        ("a.csv", "Text,TEXT,label\na,b,c\n", {}, "has no column with a name known for the text "),
        ("a.csv", "text,label\na,b\n", {"text": "phrase"}, "has no column 'phrase' for the text; it has text, label"),
        ("a.csv", "text,label\na,b\n", {"text": "1", "label": "2"}, "line 1 is a header: choose columns by name "),
        ("a.csv", "text,label\na,b\ntext,label\n", {}, "line 3 repeats the header, as in joined files: remove it"),
        ("a.csv", "text,label\na,b\n\ufefftext,label\n", {}, "line 3 repeats the header"),
        (
            "a.csv",
            "text,label\na,b\n",
            {"label": "text"},
            "a.csv: the label and a text are in 'text': choose two columns",
        ),
        ("a.csv", "text,text,label\na,b,c\n", {}, "line 1 names the column 'text' twice: rename or remove one"),
        ("a.csv", b"text,l\xffbel\n", {}, "line 1: byte 6 is not UTF-8"),
    ],
)
def test_files_that_cannot_be_read(write, name, content, columns, message):
    with pytest.raises(DataError, match=message):
        list(read_labeled_texts(write(name, content), "class", columns=columns))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("", "line 1 is empty: remove it"),
        ("{", "line 1 is not JSON: {"),
        ("[1]", "line 1 is a JSON list"),
        ("{}", "line 1(: | has no )"),
    ],
)
@pytest.mark.parametrize(
    ("read", "row"),
    [
        (lambda path, **options: read_labeled_texts(path, "class", **options), {"text": "a", "label": "x"}),
        (read_tagged, {"tokens": ["a"], "tags": ["O"]}),
        (read_questions, {"question": "who?", "context": "the cat", "answer": "cat"}),
        (read_choices, {"context": "a", "choices": ["b", "c"], "label": 0}),
    ],
)
def test_jsonl_file_with_bad_first_lines(write, read, row, first, message):
    path = write("a.jsonl", f"{first}\n{first}\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=f"a.jsonl, {message}"):
        list(read(path))
    bad = BadRows(skip=True)
    (results,) = read(path, bad_rows=bad)
    assert results.location == f"{path}, line 3"
    assert [one.line for one in bad.rows] == ([1, 2] if first else [1])  # blank lines that follow each other are one
    if first:
        path = write("b.jsonl", f"{first}\n{first}\n")
        with pytest.raises(DataError, match=f"b.jsonl, {message}"):
            list(read(path))
        with pytest.raises(DataError, match=f"holds no row that can be used; 2 skipped, the first: .*{message}"):
            list(read(path, bad_rows=BadRows(skip=True)))


def test_texts_with_half_a_character_name_the_line(write):
    path = write("rows.jsonl", '{"text": "ok"}\n{"text": "ok \\ud83d"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: the text is not valid Unicode: character 4 is"):
        list(read_texts(path))


def test_rejects_files_that_are_not_texts(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        list(read_labeled_texts(tmp_path / "none.csv", "class"))
    with pytest.raises(DataError, match=r"a.parquet: no such file"):
        list(read_labeled_texts(tmp_path / "a.parquet", "class"))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 this is not parquet")
    with pytest.raises(DataError, match=r"a.parquet cannot be read as parquet"):
        list(read_labeled_texts(tmp_path / "a.parquet", "class"))
    with pytest.raises(UsageError, match="unknown 'txt', expected one of text, pair, label"):
        list(read_labeled_texts(tmp_path / "a.csv", "class", columns={"txt": "a"}))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_texts_of_a_table_with_tabs_are_its_rows(write, name):
    path = write(name, 'text\tlabel\n"unclosed\tblame\nthird\tpraise\nfour"\tblame\nfifth\tpraise\n')
    expected = ['"unclosed', "third", 'four"', "fifth"]
    assert list(read_texts(path)) == [one.text for one in read_labeled_texts(path, "class")] == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"PK\x03\x04\x14\0\x06", "the file is an Excel workbook or another zip archive: save its table"),
        ("a.txt", b"\xd0\xcf\x11\xe0\xa1\xb1", "the file is an old Excel or Word file: save it as CSV UTF-8"),
        ("a.txt", "a\nb\n".encode("utf-16"), "line 1 is not UTF-8 text: the file is in UTF-16"),
        ("a.csv", "text\na\n".encode("utf-16"), "the file is in UTF-16"),
        ("a.csv", "text\na\n".encode("utf-32"), "the file is in UTF-32"),
        ("a.csv", "text\na\n".encode("utf-16-le"), "the file has zero bytes, as in UTF-16"),
        ("a.txt", "text\na\n".encode("utf-16-be"), "the file has zero bytes, as in UTF-16"),
        ("a.csv", b"PAR1\x15\x04\x15", "the file is in the format parquet: name it .parquet"),
        ("a.csv", b"ARROW1\0\0\xff\xff", "the file is in the format Arrow"),
        ("a.csv", b"\xff\xff\xff\xff\x10\0", "the file is in the format Arrow, as a data set saved to disk"),
        ("a.csv", gzip.compress(b"text\na\n", mtime=0), "the file is compressed"),
        ("a.tsv", gzip.compress(b"text\tlabel\na\tb\n", mtime=0), "the file is compressed"),
    ],
)
def test_files_of_texts_that_cannot_be_read(write, name, content, message):
    with pytest.raises(DataError, match=message):
        list(read_texts(write(name, content)))


@pytest.mark.parametrize(
    "content",
    [
        "text,label\nfine,praise\n",
        "text;label\r\nfine;praise\r\n",
        "text|label\nfine|praise\n",
        '\ufeff"text";"label"\r\n"fine";"praise"\r\n',
        " text , label \nfine,praise\n",
        ",text,,label,,\n,fine,,praise,,\n",
        "text\tlabel\t\t\nfine\tpraise\t\t\n",
    ],
)
def test_tables_as_spreadsheets_write_them(write, content):
    path = write("a.csv", content)
    assert list(read_texts(path)) == ["fine"]
    assert [(one.text, one.label) for one in read_labeled_texts(path, "class")] == [("fine", "praise")]


def test_semicolons_separate_columns_only_where_the_first_line_has_no_comma(write):
    path = write("a.csv", 'text;label\n"one; two\nthree, four";praise\n')
    assert [one.text for one in read_labeled_texts(path, "class")] == ["one; two\nthree, four"]
    path = write("b.csv", "text,a;b\none; two,praise\n")
    assert [one.text for one in read_labeled_texts(path, "class", columns={"label": "a;b"})] == ["one; two"]
    with pytest.raises(DataError, match=r"line 2 has the target '4,5' .* write decimals with a point, "):
        list(read_labeled_texts(write("c.csv", "text;score\na;4,5\n"), "number"))


def test_no_row_of_a_file_in_utf_16_is_read(write):
    path = write("a.txt", "one\ntwo\n".encode("utf-16"))  # its second line is valid UTF-8, with zeros
    with pytest.raises(DataError, match=r"the file is in UTF-16"):
        list(read_labeled_texts(path, None, bad_rows=BadRows(skip=True)))


def test_paths_without_a_file(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(DataError, match="is a folder: expected a file"):
        list(read_labeled_texts(tmp_path / "a.csv", "class"))
    os.mkfifo(tmp_path / "pipe.txt")
    for texts in (read_texts(tmp_path / "pipe.txt"), read_labeled_texts(tmp_path / "pipe.txt", "class")):
        with pytest.raises(DataError, match=r"pipe.txt is a pipe or a device, .* or pass it by -"):
            next(iter(texts))
    with pytest.raises(DataError, match="nosuch: no such file or folder"):
        list(read_texts(tmp_path / "nosuch"))
    with pytest.raises(UsageError, match="the path of the texts is empty"):
        list(read_texts(""))


def test_parquet_files_are_read_as_jsonl_files_are(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    answers = {"text": ["cat"], "answer_start": [4]}
    choices = {"text": ["b", "c"], "label": ["A", "B"]}
    readers = [
        (lambda path, **options: read_labeled_texts(path, "class", **options), {"text": "a", "label": "x"}),
        (lambda path, **options: read_labeled_texts(path, "class", **options), {"sentence": "a", "label": 1}),
        (lambda path, **options: read_labeled_texts(path, "set", **options), {"text": "a", "labels": ["x", "y"]}),
        (lambda path, **options: read_labeled_texts(path, "number", **options), {"text": "a", "score": 2.5}),
        (read_tagged, {"tokens": ["a", "cat"], "tags": ["O", "B-X"]}),
        (read_questions, {"question": "who?", "context": "the cat", "answers": answers, "id": "q"}),
        (read_choices, {"question": "a", "choices": choices, "answerKey": "B"}),
    ]
    for read, row in readers:
        rows = [row, dict.fromkeys(row), row]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
        results = {}
        for name, unit in (("a.jsonl", "line"), ("a.parquet", "row")):
            bad = BadRows(skip=True)
            examples = list(read(tmp_path / name, bad_rows=bad))
            assert [one.location for one in examples] == [f"{tmp_path / name}, {unit} {line}" for line in (1, 3)]
            with pytest.raises(DataError, match=f"{name}, {unit} 2"):
                list(read(tmp_path / name))
            results[name] = [replace(one, location="") for one in examples], [(one.line, one.why) for one in bad.rows]
        assert results["a.parquet"] == results["a.jsonl"]


def test_several_pairs_of_columns_are_refused(write):
    table = write("a.csv", "premise,hypothesis,sentence1,sentence2,label\na,b,c,d,x\n")
    several = r"sentence1 and sentence2; premise and hypothesis\): choose one with --columns text=NAME pair=NAME"
    with pytest.raises(DataError, match=several):
        list(read_labeled_texts(table, "class"))
    (row,) = read_labeled_texts(table, "class", columns={"text": "premise", "pair": "hypothesis"})
    assert row.texts == ("a", "b")
    with pytest.raises(DataError, match="choose one with --columns query=NAME positive=NAME"):
        list(read_text_sets(ExampleFile(write("b.csv", "query,positive,document\na,b,c\n"))))
    (row,) = read_text_sets(
        ExampleFile(write("d.csv", "source,target\na,b\n"), columns={"query": "source", "positive": "target"})
    )
    assert (row.query, row.positives, row.score) == ("a", ("b",), None)  # not a score, as its name is chosen


def test_ids_of_rows(write):
    table = write("a.csv", "id,text,label\n07,a cat,x\n,a dog,y\n")
    assert [one.id for one in read_labeled_texts(table, "class")] == ["07", ""]
    assert [one.id for one in read_tagged(table, labeled=False)] == ["07", ""]
    rows = [{"id": 7, "text": "a", "spans": []}, {"id": None, "text": "a", "spans": []}]
    spans = write("spans.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    words = write("words.jsonl", json.dumps({"id": 7, "tokens": ["a"], "tags": ["O"]}))
    question = write("q.jsonl", json.dumps({"id": None, "question": "who", "context": "a", "answers": "a"}))
    assert [one.id for labeled in (True, False) for one in read_tagged(spans, labeled=labeled)] == ["7", ""] * 2
    assert next(iter(read_tagged(words))).id == "7" and next(iter(read_questions(question))).id == ""
    asked = {"id": 0, "question": "who", "answers": [{"text": "a", "answer_start": 0}]}
    squad = write("a.json", json.dumps({"data": [{"paragraphs": [{"context": "a", "qas": [asked]}]}]}))
    choices = write("c.jsonl", json.dumps({"id": 0, "question": "who", "choices": ["x", "y"], "label": 0}))
    assert [one.id for one in (*read_questions(squad), *read_choices(choices))] == ["0", "0"]


def test_extensions_in_capitals(write, tmp_path):
    for name, content in (("A.JSONL", '{"text": "a", "label": "x"}\n'), ("A.TSV", "label\ttext\nx\ta\n")):
        (row,) = read_labeled_texts(write(name, content), "class")
        assert (row.text, row.label) == ("a", "x")
        assert list(read_texts(tmp_path / name, "text")) == ["a"]
    assert [path.name for path in find_files(tmp_path)[0]] == ["A.JSONL", "A.TSV"]
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "A.PARQUET")
    assert list(read_texts(tmp_path / "A.PARQUET")) == ["a"]


@pytest.mark.full
def test_reading_takes_no_more_than_a_row(write):
    rows = read_labeled_texts(write("a.csv", "text,label\n" + "a,x\n" * 50_000 + "b\n"), "class")
    assert next(rows).text == "a"  # long before the bad row at the end is reached
    with pytest.raises(DataError, match="line 50002 has 1 fields"):
        list(rows)


# Words with tags


@pytest.mark.full
def test_wnut17_and_wikigold(shared_data):
    data = shared_data / "ner_wnut17/CONLL-format/data"
    numbers, names = {}, set()
    for part, file in (
        ("train", "wnut17train.conll"),
        ("dev", "emerging.dev.conll"),
        ("test", "emerging.test.annotated"),
    ):
        texts = list(read_tagged(data / part / file))
        numbers[part] = len(texts)
        names |= {tag for text in texts for tag in text.tags}
        for text in texts[:50]:
            assert text.text.split(" ") == [text.text[start:end] for start, end in text.words]
    assert numbers == {"train": 3394, "dev": 1009, "test": 1287} and len(names) == 13
    texts = list(read_tagged(shared_data / "ner_wikigold/CONLL-format/data/wikigold.conll.txt"))
    assert {tag for text in texts for tag in text.tags} == {"O", "I-MISC", "I-ORG", "I-LOC", "I-PER"}
    assert not any("-DOCSTART-" in text.text for text in texts)
    as_bio = list(read_tagged(shared_data / "ner_wikigold/CONLL-format/data/wikigold.conll.txt", scheme="BIO"))
    assert texts[0].tags[6:8] == ("I-MISC", "O") and as_bio[0].tags[6:8] == ("B-MISC", "O")
    assert sum(tag[0] == "B" for text in as_bio for tag in text.tags) > 3000


def test_universal_dependencies(shared_data):
    path = shared_data / "ud_english_ewt/en_ewt-ud-dev.conllu"
    texts = list(read_tagged(path))
    assert len(texts) == 2001 and sum(len(text.words) for text in texts) == 25147
    assert texts[0].text == "From the AP comes this story :" and texts[0].tags[:3] == ("ADP", "DET", "PROPN")
    assert next(read_tagged(path, columns={"tag": "xpos"})).tags[:2] == ("IN", "DT")
    assert next(read_tagged(path, labeled=False)).tags is None
    assert texts[0].location.endswith("line 5")


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.conll", "Ada B-P\nL. I-P\n\nx O\n", {}, [("Ada L.", ("B-P", "I-P")), ("x", ("O",))]),
        (
            "a.conll",
            "EU NNP I-NP I-ORG\nin IN I-PP O\n\nUN NNP I-NP I-ORG\nUS NNP I-NP B-ORG\n",
            {},
            [("EU in", ("B-ORG", "O")), ("UN US", ("B-ORG", "B-ORG"))],
        ),
        ("a.conll", "EU NNP I-ORG\nin IN O\n", {"columns": {"tag": "2"}}, [("EU in", ("NNP", "IN"))]),
        ("a.conll", "Ada U-P\nx O\nA B-P\nB L-P\n", {}, [("Ada x A B", ("S-P", "O", "B-P", "E-P"))]),
        ("a.conll", "a I-P\nb I-Q\n", {"scheme": "BIOES"}, [("a b", ("S-P", "S-Q"))]),
        ("a.conll", "a B-P\nb O\n", {"scheme": "plain"}, [("a b", ("B-P", "O"))]),
        ("a.conll", "a O\nb O\n", {"scheme": "BIO"}, [("a b", ("O", "O"))]),
        ("a.conll", "10 000\tNUM\nb\tNOUN", {}, [("10 000 b", ("NUM", "NOUN"))]),
        ("a.txt", "a B-P\n\nb O\n", {}, [("a", ("B-P",)), ("b", ("O",))]),
        ("a.txt", "Hi there.\n\nbye\n", {"labeled": False}, [("Hi there.", None), ("", None), ("bye", None)]),
        ("a.conll", "Hi\nthere\n\nbye\n", {"labeled": False}, [("Hi there", None), ("bye", None)]),
        (
            "a.conllu",
            "# text = du\n1-2\tdu\t_\t_\n1\tde\t_\tADP\n2\tle\t_\tDET\n2.1\tx\t_\t_\n",
            {},
            [("de le", ("ADP", "DET"))],
        ),
        (
            "a.jsonl",
            '{"tokens": ["New", "York", "!"], "ner_tags": ["B-L", "I-L", "O"]}',
            {},
            [("New York !", ("B-L", "I-L", "O"))],
        ),
        (
            "a.jsonl",
            '{"text": "In New-York!", "spans": [[3, 11, "L"]]}',
            {},
            [("In New-York!", ("O", "B-L", "I-L", "I-L", "O"))],
        ),
        (
            "a.jsonl",
            '{"text": "In York", "entities": [{"start": 3, "end": 7, "label": "L"}]}\n{"text": "", "entities": []}',
            {"scheme": "BIOES"},
            [("In York", ("O", "S-L")), ("", ())],
        ),
        (
            "a.jsonl",
            '{"text": "In New-York!", "spans": [[3, 11, "L"]]}',
            {"words": "spaces"},
            [("In New-York!", ("O", "B-L", "O"))],
        ),
        ("a.jsonl", '{"text": "a b", "label": []}', {"labeled": False}, [("a b", None)]),
        ("a.tsv", 'id\ttext\n1\tHi "you\n2\t\n', {"labeled": False}, [('Hi "you', None), ("", None)]),
        ("a.csv", 'text,id\n"Hi, you",1\n', {"labeled": False}, [("Hi, you", None)]),
        ("a.tsv", "1\tHi you\n", {"labeled": False, "columns": {"text": "2"}}, [("Hi you", None)]),
        ("a.tsv", "Hi\tO\nyou\tO\n\nbye\tO\n", {"labeled": False}, [("Hi you", None), ("bye", None)]),
        ("a.tsv", "x\ttext\ny\tHi\n", {"labeled": False, "columns": {"word": "2"}}, [("text Hi", None)]),
    ],
)
def test_tagged_files(write, name, content, options, expected):
    results = list(read_tagged(write(name, content), **options))
    assert [(text.text, text.tags) for text in results] == expected
    for text in results:
        assert isinstance(text, TaggedText) and (text.tags is None or len(text.tags) == len(text.words))


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        (
            "a.conll",
            "a B-P\nb\n\nc O\n",
            {},
            r"a.conll, line 2 has 1 fields, the first line has 2: expected the same number",
        ),
        ("a.conll", "a\nb\n", {}, r"line 1 has no tag: expected a word and its tag"),
        ("a.conll", "a\tO\nb\t \n", {}, r"line 2 has an empty field"),
        (
            "a.conll",
            "a B-P\n\nb O\nc I-P\n",
            {},
            r"line 3: the tag 'I-P' of word 2, 'c', is not part of an entity in scheme BIO: correct it, or",
        ),
        (
            "a.conll",
            "a B-P\nb O\n\nc O\nd b-P\n\ne B-Q\n",
            {},
            r"line 4: the tag 'b-P' of word 2, 'd', is not part of an entity in scheme BIO: correct it, or read the "
            r"tags as plain labels with scheme='plain'",
        ),
        (
            "a.conll",
            "a B-P\nb O\n\nc O\nd PER\n\ne I-P\n",
            {"scheme": "IO"},
            r"line 4: the tag 'PER' of word 2, 'd', is not part of an entity in scheme BIO",
        ),
        (
            "a.conll",
            "a B-P\nb S-P\n",
            {},
            r"line 1: the tag 'B-P' of word 1, 'a', is not part of an entity in scheme BIOES",
        ),
        (
            "a.conll",
            "a NOUN\n",
            {"scheme": "BIO"},
            r"line 1: the tag 'NOUN' of word 1, 'a', is not part of an entity in scheme BIO",
        ),
        ("a.conll", "a B-P\nb B-P\n", {"scheme": "IO"}, r"line 1: two entities of one type are adjacent"),
        (
            "a.conll",
            "a B-P\n\nb B-Q\n",
            {"label_names": ["O", "B-P"]},
            r"line 3 has the label 'B-Q', which is not among the 2 known",
        ),
        ("a.conll", b"a B-P\n\n\xff O\n", {}, r"line 3: byte 0 is not UTF-8"),
        (
            "a.jsonl",
            '{"tokens": ["a", "b"], "tags": ["O"]}',
            {},
            r"line 1 has 2 words and 1 tags: expected one tag for each word",
        ),
        ("a.jsonl", '{"tokens": ["a"], "tags": [1]}', {}, r"line 1: 'tags' holds integers \(\[1\]\): name them"),
        (
            "a.jsonl",
            '{"tokens": [], "tags": []}',
            {},
            r"line 1: 'tokens' is \[\], expected a list of strings, none empty",
        ),
        (
            "a.jsonl",
            '{"text": "ab cd", "spans": [[0, 5, "P"], [3, 5, "Q"]]}',
            {},
            r"line 1: a P and a Q span overlap in 'cd': each word",
        ),
        (
            "a.jsonl",
            '{"text": "ab cd", "spans": [[1, 5, "P"]]}',
            {},
            r"line 1: the span 1-5, 'b cd', starts inside a word or at white space: move it to the words' borders, 0-5",
        ),
        (
            "a.jsonl",
            '{"text": "ab cd", "spans": [[0, 3, "P"]]}',
            {},
            r"'ab ', ends inside a word or at white space.* 0-2",
        ),
        (
            "a.jsonl",
            '{"text": "ab cd", "spans": [[3, 6, "P"]]}',
            {},
            r"the span 3-6 is not within the text, which has 5 characters",
        ),
        ("a.jsonl", '{"text": "ab cd", "spans": [[2, 2, "P"]]}', {}, r"the span 2-2 is not within the text"),
        (
            "a.jsonl",
            '{"text": "ab cd", "spans": [[0, 2]]}',
            {},
            r"the span \[0, 2\] is invalid: expected \[start, end, label\]",
        ),
        ("a.jsonl", '{"text": "ab cd", "spans": [["0", 2, "P"]]}', {}, r"is invalid: expected \[start, end, label\]"),
        ("a.jsonl", '{"text": "ab cd", "spans": null}', {}, r"the spans are None, expected a list of spans, or \[\]"),
        ("a.conll", "\n\n", {}, r"a.conll holds no examples"),
    ],
)
def test_bad_tags_are_errors_or_skipped(write, name, content, options, message):
    path = write(name, content)
    with pytest.raises(DataError, match=message) as error:
        list(read_tagged(path, **options))
    bad = BadRows(skip=True)
    try:
        list(read_tagged(path, **options, bad_rows=bad))
    except DataError as none_left:
        assert "skipped" in str(none_left) or "holds no examples" in str(none_left)
    assert "holds no examples" in message or str(bad.rows[0]) == str(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.conll", "Ada\tB-PER \nLee\t I-PER\nsat\tO \n"),
        ("a.jsonl", '{"words": ["Ada", "Lee", "sat"], "tags": ["B-PER ", " I-PER", "O\\u00a0"]}\n'),
    ],
)
def test_tags_are_read_without_spaces_around_them(write, name, content):
    (example,) = read_tagged(write(name, content))
    assert example.tags == ("B-PER", "I-PER", "O")


def test_rejects_files_that_are_not_tags(write):
    with pytest.raises(UsageError, match="convert it to jsonl"):
        list(read_tagged(write("a.csv", "a,O\n")))
    with pytest.raises(DataError, match=r"b.csv, line 1 has no known column name"):
        list(read_tagged(write("b.csv", "a,O\n"), labeled=False))
    with pytest.raises(DataError, match=r"c.tsv, line 2 has 1 fields"):
        list(read_tagged(write("c.tsv", "text\tid\na\n"), labeled=False))
    with pytest.raises(DataError, match="no column '7' for the tag"):
        list(read_tagged(write("a.conll", "a O\n"), columns={"tag": "7"}))
    with pytest.raises(UsageError, match="expected one of word, tag"):
        list(read_tagged(write("a.conll", "a O\n"), columns={"text": "1"}))


# Words


@pytest.mark.parametrize(
    ("text", "punctuation", "spaces"),
    [
        ("Hello, world!", "Hello|,|world|!", "Hello|,|world|!"),
        ("U.S.-based (e.g. U.S.)...", "U|.|S|.|-|based|(|e|.|g|.|U|.|S|.|)|.|.|.", "U.S.-based|(|e.g.|U.S.|)|..."),
        ("@ann's #tag's 3.5%", "@|ann|'|s|#|tag|'|s|3|.|5|%", "@ann|'s|#tag|'s|3.5%"),
        ('\'s "“x”" ...', '\'|s|"|“|x|”|"|.|.|.', '\'|s|"|“|x|”|"|...'),
        ("東京 é\u0301tat\tx_y", "東|京|é\u0301tat|x|_|y", "東|京|é\u0301tat|x_y"),
        ("在iPhone上，U.S.！", "在|iPhone|上|，|U|.|S|.|！", "在|iPhone|上|，|U.S.|！"),
        (" \n", "", ""),
    ],
)
def test_words_of_a_text(text, punctuation, spaces):
    for words, expected in (("punctuation", punctuation), ("spaces", spaces)):
        assert "|".join(text[start:end] for start, end in words_of(text, words)) == expected


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="ab .,'s\"()U-\n\u00a0é東\u0301でกั"))
def test_words_hold_all_of_a_text_but_its_spaces(text):
    for words in ("punctuation", "spaces"):
        spans = words_of(text, words)
        assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
        assert all(first[1] <= second[0] for first, second in pairwise(spans))


# Questions


def test_xquad(shared_data):
    path = shared_data / "xquad/xquad.en.json"
    questions = list(read_questions(path))
    assert len(questions) == 1190 and all(len(question.answers) == 1 for question in questions)
    content = json.loads(path.read_text())
    expected = [
        (part["context"], question["question"], [answer["text"] for answer in question["answers"]], question["id"])
        for article in content["data"]
        for part in article["paragraphs"]
        for question in part["qas"]
    ]
    assert [(q.context, q.question, q.answer_texts, q.id) for q in questions] == expected
    line = int(re.search(r"line (\d+), question", questions[700].location).group(1))
    assert questions[700].id in path.read_text().split("\n")[line - 1]


@pytest.mark.full
def test_tweets_as_questions(shared_data):
    bad = BadRows(skip=True)
    tweets = list(read_questions(shared_data / "tweet_sentiment_extraction/train.csv", bad_rows=bad))
    assert len(tweets) == 27480 and len(bad.rows) == 1
    assert tweets[1].question == "negative" and tweets[1].answer_texts == ["Sooo SAD"]
    test = list(read_questions(shared_data / "tweet_sentiment_extraction/test.csv", labeled=False))
    assert len(test) == 3534 and test[0].answers is None and test[0].id == "f87dea47db"


def squad(*questions, context="the cat sat"):
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}, indent=1)


def asked(**values):
    return {"id": "q1", "question": "who?"} | values


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        (
            "a.json",
            squad(asked(answers=[{"text": "cat", "answer_start": 4}, {"text": "the cat", "answer_start": 0}])),
            {},
            ["cat", "the cat"],
        ),
        ("a.json", squad(asked(answers=[], is_impossible=True, plausible_answers=[1])), {}, []),
        ("a.json", squad(asked()), {"labeled": False}, None),
        (
            "a.jsonl",
            '{"question": "who?", "context": "the cat sat", "answers": {"text": ["cat"], "answer_start": [4]}}',
            {},
            ["cat"],
        ),
        (
            "a.jsonl",
            '{"question": "who?", "context": "the cat sat", "answers": {"text": [], "answer_start": []}}',
            {},
            [],
        ),
        ("a.jsonl", '{"question": "who?", "context": "the cat sat", "answers": [{"text": "cat"}]}', {}, ["cat"]),
        ("a.csv", "question,context,answer\nwho?,the cat sat,cat\n", {}, ["cat"]),
        ("a.csv", "question,context,answer\nwho?,the cat sat,\n", {}, []),
        ("a.csv", "question,context,answer,answer_start\nwho?,the cat sat,t,6\n", {}, ["t"]),
        (
            "a.csv",
            "w,x,y\nwho?,the cat sat,cat\n",
            {"columns": {"question": "w", "context": "x", "answer": "y"}},
            ["cat"],
        ),
        ("a.csv", "who?,the cat sat,cat\n", {"columns": {"question": "1", "context": "2", "answer": "3"}}, ["cat"]),
    ],
)
def test_files_of_questions(write, name, content, options, expected):
    (question,) = read_questions(write(name, content), **options)
    assert isinstance(question, Question) and (question.question, question.context) == ("who?", "the cat sat")
    assert (question.answers if expected is None else question.answer_texts) == expected
    if "answer_start" in content and name == "a.csv":
        assert question.answers == ((6, 7),)  # not the first t


def test_keys_of_later_objects_are_read(write):
    rows = [{"question": "who?", "context": "the cat sat", "answer": ""}]
    rows.append(rows[0] | {"answer": "t", "answer_start": 6, "id": "b"})
    rows.append(rows[0] | {"answer": "t", "answer_start": 0})
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [(one.answers, one.id) for one in read_questions(path)] == [((), ""), (((6, 7),), "b"), (((0, 1),), "")]
    path = write(
        "b.jsonl", "".join(json.dumps(row) + "\n" for row in [*rows, rows[0] | {"answer": "sat", "answer_start": 0}])
    )
    with pytest.raises(DataError, match=r"line 4: the answer 'sat' is not at 0 in its context but at 8"):
        list(read_questions(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.json",
            squad(asked(answers=[{"text": "dog", "answer_start": 4}])),
            r"a.json, line 9: the answer 'dog' is not in its context: correct it, or",
        ),
        (
            "a.json",
            squad(asked(answers=[{"text": "cat", "answer_start": 3}])),
            r"line 9: the answer 'cat' is not at 3 in its context but at 4: correct answer_start",
        ),
        (
            "a.json",
            squad(asked(answers=[{"text": "cat", "answer_start": "4"}])),
            r"answer_start is '4', expected a character index",
        ),
        ("a.json", squad(asked(answers=[{"text": "", "answer_start": 4}])), r"expected answers as in SQuAD"),
        ("a.json", squad(asked()), r"'answers' is None, expected answers as in SQuAD, or \[\] for no answer"),
        (
            "a.json",
            squad(asked(answers=[{"text": "cat", "answer_start": 4}], is_impossible=True)),
            r"has is_impossible although it has an answer",
        ),
        (
            "a.json",
            squad(asked(answers=[], is_impossible=False)),
            r"line 9 is_impossible is false, but there is no answer",
        ),
        ("a.json", squad(asked(question=" ", answers=[])), r"line 9 has an empty question: fill it in"),
        ("a.json", squad({"id": "x"}), r"has no 'question': add it"),
        ("a.json", '{"data": [{"context": 1}]}', r"a.json is not in SQuAD's format, .* KeyError 'paragraphs'"),
        ("a.json", '{"data"', r"a.json is not JSON"),
        ("a.json", '{"data": []}', r"a.json holds no examples"),
        (
            "a.csv",
            "question,context,answer\nwho?,the cat sat,cats\n",
            r"a.csv, line 2: the answer 'cats' is not in its context",
        ),
        ("a.csv", "question,context,answer\nwho?,,x\n", r"line 2: the answer 'x' is not in"),
        ("a.csv", "question,context,answer,answer_start\nwho?,cat,cat,one\n", r"answer_start is 'one', expected"),
        (
            "a.csv",
            "question,context,answer\nwho?,the cat, \n",
            r"line 2: the answer ' ' has no visible characters: correct",
        ),
        (
            "a.json",
            squad(asked(answers=[{"text": " \u200b", "answer_start": 3}]), context="the \u200b cat"),
            r"line 9: the answer ' .u200b' has no visible characters: correct it, or remove the question",
        ),
        ("a.csv", "question,context\nwho?,cat\n", r"no column with a name known for the answer"),
    ],
)
def test_bad_questions_are_errors_or_skipped(write, name, content, message):
    path = write(name, content)
    with pytest.raises(DataError, match=message) as error:
        list(read_questions(path))
    bad = BadRows(skip=True)
    with pytest.raises(DataError):
        list(read_questions(path, bad_rows=bad))
    assert not bad.rows or str(bad.rows[0]) == str(error.value)
    assert bool(bad.rows) == (", line " in str(error.value))


# Choices


def test_openbookqa(shared_data):
    questions = list(read_choices(shared_data / "openbookqa/Main/train.tsv"))
    assert len(questions) == 4957 and {len(question.choices) for question in questions} == {4}
    dev = list(read_choices(shared_data / "openbookqa/Main/dev.tsv"))
    assert dev[0].choices == ("Deep sea animals", "fish", "Long Sea Fish", "Far Sea Animals")
    assert dev[0].label == 0 and dev[0].id == "8-376" and dev[1].label == 3
    for question, line in zip(dev, (shared_data / "openbookqa/Main/dev.tsv").read_text().split("\n")[1:], strict=False):
        packed = " ".join(f"({letter}) {choice}" for letter, choice in zip("ABCD", question.choices, strict=True))
        assert packed.split() == line.split("\t")[2].split()


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        (
            "a.csv",
            ",sent1,sent2,ending0,ending1,ending2,label\n0,He sat.,She,ran,sat,slept,1\n",
            {},
            ("He sat.", ("She ran", "She sat", "She slept"), 1),
        ),
        (
            "a.csv",
            "sent1,sent2,ending0,ending1\nHe sat.,She,ran,sat\n",
            {"labeled": False},
            ("He sat.", ("She ran", "She sat"), None),
        ),
        (
            "a.tsv",
            "Question Stem\tChoices\tAnswer Key\nWho?\t(A) the (C) cat (B) a (D)\tB\n",
            {},
            ("Who?", ("the (C) cat", "a (D)"), 1),
        ),
        (
            "a.tsv",
            f"Question Stem\tChoices\tAnswer Key\nWho?\t{' '.join(f'({x}) {x}' for x in 'ABCDEFGHIJ')} or (A)\tJ\n",
            {},
            ("Who?", (*"ABCDEFGHI", "J or (A)"), 9),
        ),
        (
            "a.jsonl",
            '{"id": "1", "question": {"stem": "Who?", "choices": [{"text": "x", "label": "A"}, '
            '{"text": "y", "label": "B"}]}, "answerKey": "B"}',
            {},
            ("Who?", ("x", "y"), 1),
        ),
        (
            "a.jsonl",
            '{"question_stem": "Who?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "1"}',
            {},
            ("Who?", ("x", "y"), 0),
        ),
        ("a.jsonl", '{"context": "Who?", "choices": ["x", "y", "z"], "label": 2}', {}, ("Who?", ("x", "y", "z"), 2)),
    ],
)
def test_files_of_choices(write, name, content, options, expected):
    (question,) = read_choices(write(name, content), **options)
    assert isinstance(question, ChoiceQuestion) and (question.context, question.choices, question.label) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "sent1,sent2,ending0,ending1,label\na,b,c,d,2\n",
            r"line 2: the right choice is 2: expected its index, from 0 to 1",
        ),
        ("a.csv", "sent1,sent2,ending0,ending1,label\na,b,c,d,\n", r"line 2: the right choice is ''"),
        ("a.csv", "x,y\n1,2\n", r"line 1 has no known column name"),
        ("a.csv", "sent1,y\n1,2\n", r"has the columns sent1, y: expected sent1, sent2, ending0, ending1 as in SWAG"),
        (
            "a.tsv",
            "Question Stem\tChoices\tAnswer Key\nWho?\tthe cat\tA\n",
            r"line 2: the choices the cat do not start with \(A\)",
        ),
        ("a.tsv", "Question Stem\tChoices\tAnswer Key\nWho?\t(A) x (B) y\tC\n", r"line 2: the right choice is 2"),
        ("a.tsv", "Question Stem\tChoices\tAnswer Key\nWho?\t(A) x (B) y\tAB\n", r"line 2: the right choice is 'AB'"),
        ("a.tsv", "Question Stem\tChoices\tAnswer Key\nWho?\t(A) x (B)\tA\n", r"line 2 has an empty choice"),
        ("a.jsonl", '{"context": "a", "choices": ["x"], "label": 0}', r"line 1 has 1 choices: expected at least 2"),
        ("a.jsonl", '{"context": "a", "choices": ["x", 3], "label": 0}', r"line 1: 'choices' is int"),
        ("a.jsonl", '{"context": "a", "choices": "x", "label": 0}', r"line 1: expected 'context' or 'question'"),
        ("a.jsonl", '{"context": "a", "choices": ["x", "y"], "label": true}', r"line 1: the right choice is True"),
        (
            "a.jsonl",
            '{"context": "a", "question": "b", "choices": ["x", "y"], "label": 0}',
            r"line 1 has both 'context' and 'question': expected one text; join them",
        ),
    ],
)
def test_bad_choices_are_named(write, name, content, message):
    with pytest.raises(DataError, match=message):
        list(read_choices(write(name, content)))
    bad = BadRows(skip=True)
    with pytest.raises(DataError):
        list(read_choices(write(name, content), bad_rows=bad))
    assert bool(bad.rows) == ("no known column name" not in message and "columns" not in message)


def test_an_unclosed_quote_costs_one_row(tmp_path):
    path, bad = tmp_path / "a.csv", BadRows(skip=True)
    path.write_text('text,label\nfine,a\n"open\n1,a\n"x" y,b\n"two\nlines",b\nopen again,"a\nlast,b\n')
    rows = list(read_labeled_texts(path, "class", bad_rows=bad))
    assert [row.text for row in rows] == ["fine", "two\nlines", "last"]
    assert [row.location.rpartition(" ")[2] for row in rows] == ["2", "6", "9"]
    (first, second) = bad.rows
    assert first.line == 3 and first.why.endswith("the quoted text takes the lines to 5")
    assert second.line == 8 and second.why.endswith("is a quote not closed?")
