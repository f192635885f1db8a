"""Files of annotation tools and data hubs: each is recognized by its content, and its entities and labels are right."""

import json
import re
from pathlib import Path

import pytest

from bertkit.cli import run
from bertkit.errors import DataError, DependencyError
from bertkit.tasks.reading import BadRows, read_labeled_texts, read_questions, read_tagged
from bertkit.tasks.reading.formats import FORMATS, format_of
from bertkit.tasks.reading.formats.format import Format
from bertkit.tasks.tags import entities_in


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), newline="")
        return path

    return write_file


def entities(text):
    """(text, label) of the entities of a text with BIO tags."""
    spans = entities_in(text.tags, "BIO")
    return [(text.text[text.words[first][0] : text.words[end - 1][1]], label) for first, end, label in spans]


def token(start, end, number):
    return {"text": "", "start": start, "end": end, "id": number}


PRODIGY = {
    "text": "Ada took 20mg", "tokens": [token(0, 3, 0), token(4, 8, 1), token(9, 11, 2), token(11, 13, 3)],
    "spans": [{"start": 0, "end": 3, "label": "PER"}, {"start": 9, "end": 11, "label": "DOSE"}], "answer": "accept",
}  # fmt: skip
LABEL_STUDIO = {
    "id": 4, "data": {"text": "Dr 😀 Ada", "source": "x.txt"}, "annotations": [{"result": [{
        "from_name": "label", "to_name": "text", "type": "labels",
        "value": {"start": 6, "end": 9, "text": "Ada", "labels": ["PER"]},
    }]}],
}  # fmt: skip
SPAN = {"start": 0, "end": 3, "text": "Ada", "labels": ["PER"]}
WEBANNO = r"""#FORMAT=WebAnno TSV 3.3
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.pos.type.POS|PosValue
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value


#Text=Ada Byron met Babbage.
1-1	0-3	Ada	NNP	*[1]	PER[1]
1-2	4-9	Byron	NNP	*[1]	PER[1]
1-3	10-13	met	VB	_	_
1-4	14-21	Babbage	NNP	*	PER
1-5	21-22	.	.	_	_

#Text=In Bath.
2-1	23-25	In	IN	_	_
2-2	26-30	Bath	NNP	*	LOC
2-3	30-31	.	.	_	_
"""
LABEL_STUDIO_CSV = (
    '"annotation_id","annotator","created_at","id","label","lead_time","text"\n'
    '0,"1","2024-01-01T00:00:00Z",1,"[{""start"":0,""end"":3,""text"":""Ada"",""labels"":[""PER""]}]",1.0,"Ada; ran"\n'
)
LABEL_STUDIO_TSV = (
    '"annotation_id"\t"annotator"\t"id"\t"label"\t"text"\n'
    '0\t"1"\t1\t"[{""start"":0,""end"":3,""text"":""Ada"",""labels"":[""PER""]}]"\t"Ada, ran"\n'
)
SPACY_JSON = [
    {"id": 0, "paragraphs": [{"raw": "Ada Byron ran. Bath", "sentences": [
        {"tokens": [{"id": number, "orth": word, "ner": tag} for number, (word, tag) in enumerate(sentence)]}
        for sentence in ([("Ada", "B-PER"), ("Byron", "L-PER"), ("ran", "O"), (".", "O")], [("Bath", "U-LOC")])
    ]}]}
]  # fmt: skip
KAGGLE = "Sentence #,Word,POS,Tag\nSentence: 1,Ada,NNP,B-PER\n,Byron,NNP,I-PER\n,ran,VB,O\nSentence: 2,Bath,NNP,B-LOC\n"


@pytest.mark.parametrize(
    ("name", "content", "form", "expected"),
    [
        ("a.jsonl", PRODIGY, "Prodigy", [("Ada", "PER"), ("20", "DOSE")]),
        ("a.jsonl", {"text": "Ada ran", "spans": [], "_task_hash": 1, "answer": "accept"}, "Prodigy", []),
        ("a.jsonl", {"text": "Ada ran", "_input_hash": 1, "answer": "accept"}, "Prodigy", []),
        (
            "a.jsonl",
            {"id": 1, "text": "Ada Byron", "entities": [{"id": 3, "label": "PER", "start_offset": 0, "end_offset": 9}]},
            None,
            [("Ada Byron", "PER")],
        ),
        ("a.jsonl", {"id": 1, "text": "Ada Byron", "labels": [[0, 3, "PER"]]}, None, [("Ada", "PER")]),
        ("a.jsonl", {"id": 1, "text": "Ada Byron", "label": [[4, 9, "PER"]], "Comments": []}, None, [("Byron", "PER")]),
        ("a.json", [LABEL_STUDIO], "Label Studio", [("Ada", "PER")]),
        ("a.json", [LABEL_STUDIO | {"annotations": [{"result": []}]}], "Label Studio", []),
        (
            "a.json",
            [{"text": "Ada B", "label": [SPAN], "annotator": 1, "lead_time": 2}],
            "Label Studio, JSON-MIN",
            [("Ada", "PER")],
        ),
        ("a.csv", LABEL_STUDIO_CSV, "Label Studio, JSON-MIN or CSV", [("Ada", "PER")]),
        ("a.csv", LABEL_STUDIO_TSV, "Label Studio, JSON-MIN or CSV", [("Ada", "PER")]),
        ("a.jsonl", {"id": 1, "text": "Ada Byron", "annotations": [
            {"id": 3, "label": "PER", "start_offset": 0, "end_offset": 9, "user": 1}]}, None, [("Ada Byron", "PER")]),
        ("a.jsonl", ["Ada ran", {"entities": [[0, 3, "PER"]]}], None, [("Ada", "PER")]),
        ("a.csv", "tokens,ner_tags\n\"['Ada', 'ran']\",\"['B-PER', 'O']\"\n", None, [("Ada", "PER")]),
        ("a.tsv", "tokens\ttags\n[\"Ada\"]\t[\"B-PER\"]\n", None, [("Ada", "PER")]),
        ("a.csv", 'id,text,label\n1,Ada ran,"[{""label"": ""PER"", ""start_offset"": 0, ""end_offset"": 3}]"\n', None,
         [("Ada", "PER")]),
        ("a.json", [["Ada ran", {"entities": [[0, 3, "PER"]]}]], None, [("Ada", "PER")]),
        ("a.tsv", WEBANNO, "WebAnno TSV 3", [("Ada Byron", "PER"), ("Babbage", "PER"), ("Bath", "LOC")]),
        ("a.csv", KAGGLE, "a word in each row", [("Ada Byron", "PER"), ("Bath", "LOC")]),
        ("a.csv", "sentence_id;words;labels\n0;Ada;B-PER\n0;ran;O\n1;Bath;B-LOC\n", "a word in each row",
         [("Ada", "PER"), ("Bath", "LOC")]),
        ("a.jsonl", {"text": "abc", "word_spans": [[0, 1], [1, 3]], "tags": ["B-X", "O"]}, None, [("a", "X")]),
        ("a.conllup", "# global.columns = ID FORM NER\n1\tAda\tB-PER\n2\tran\tO\n", None, [("Ada", "PER")]),
    ],
)  # fmt: skip
def test_entities_of_annotation_tools(write, name, content, form, expected):
    bad = BadRows()
    texts = list(read_tagged(write(name, content), bad_rows=bad))
    assert [entity for text in texts for entity in entities(text)] == expected
    assert any(f"read as {form}" in sentence for sentence in bad.noted()) == (form is not None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", PRODIGY | {"answer": "ignore"}, r"line 1 has the answer 'ignore': only accepted tasks"),
        ("a.jsonl", PRODIGY | {"answer": "reject"}, r"line 1 has the answer 'reject'"),
        ("a.json", [LABEL_STUDIO | {"annotations": []}], r"line 1 has no annotation: annotate it, or remove the task"),
        ("a.json", [LABEL_STUDIO | {"data": {"a": "x", "b": "y"}}], r"has no text, or several"),
        ("a.tsv", WEBANNO.replace("PER[1]", "*[1]"), r"line 6 has a span without a label"),
        ("a.tsv", WEBANNO.replace("\tBath\tNNP", "\tYork\tNNP"), r"line 13: the token 'York' is not in its text"),
        ("a.tsv", WEBANNO.replace("NamedEntity", "Chunk"), r"has the layers .*: expected one, or NamedEntity"),
        ("a.json", '[{"text": "a", "spans": []}, {"te', r"a.json, line 1 is not JSON"),
        ("a.json", '[{"text": "a", "spans": []}\n', r"a.json, line 2 ends the file, but not the list \(no \]\)"),
        ("a.json", '[{"text": "a", "spans": []}] [{"text": "b"}]', r"line 1 has text after the end of the list: \["),
        (
            "a.json",
            [LABEL_STUDIO | {"annotations": [*LABEL_STUDIO["annotations"], {"result": []}]}],
            r"line 1 has 2 annotations that differ: keep one of them",
        ),
        (
            "a.json",
            [{"annotation_id": 1, "text": "Ada", "label": [SPAN | {"labels": ["PER", "DOG"]}]}],
            r"line 1 has a span with the labels \['PER', 'DOG'\]: keep one of them",
        ),
        (
            "a.json",
            [{"id": 0, "paragraphs": [{"sentences": [{"tokens": [{"orth": "a", "ner": "-"}]}]}]}],
            r"line 1 has a token without a tag, '-'",
        ),
        (
            "a.json",
            [{"id": 0, "paragraphs": [{"sentences": [{"tokens": [{"orth": "a"}]}]}]}],
            r"line 1: it lacks 'ner'",
        ),
        ("a.jsonl", {"text": "ab", "word_spans": [[1, 0]], "spans": []}, r"'word_spans' is .* expected \[start, end\]"),
    ],
)
def test_annotations_that_cannot_be_used(write, name, content, message):
    with pytest.raises(DataError, match=message):
        list(read_tagged(write(name, content)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "tokens,ner_tags\n\"['Ada', 'ran']\",\"['B-PER', 'O']\"\n"),
        ("a.csv", "sentence,word,tag\n1,Ada,B-PER\n1,ran,O\n"),
        ("a.csv", LABEL_STUDIO_CSV.replace("Ada; ran", "Ada ran")),
        ("a.csv", "text,note\nAda ran,x\n"),
        ("a.jsonl", PRODIGY | {"text": "Ada ran", "tokens": [], "spans": []}),
    ],
)
def test_files_for_training_are_read_for_prediction_too(write, name, content):
    assert [one.text for one in read_tagged(write(name, content), labeled=False)] == ["Ada ran"]


def test_json_of_spacy_2(write):
    bad = BadRows()
    texts = list(read_tagged(write("a.json", SPACY_JSON), scheme="BIO", bad_rows=bad))
    assert [entities(text) for text in texts] == [[("Ada Byron", "PER")], [("Bath", "LOC")]]
    assert "read as spaCy JSON" in bad.noted()[0] and "scheme BIOES, 2 types" in bad.noted()[1]


def test_brat_folders(write, tmp_path):
    write("brat/a.txt", "Ada met\r\nBabbage 😀.")
    write("brat/a.ann", "T1\tPER 0 3\tAda\nT2\tPER 9 16\tBabbage\nR1\tknows Arg1:T1 Arg2:T2\n#1\tNote T1\tx\n")
    write("brat/b.txt", "In Bath")
    write("brat/b.ann", "T1\tLOC 3 7\tBath\n")
    texts = list(read_tagged(tmp_path / "brat"))
    assert [entities(text) for text in texts] == [[("Ada", "PER"), ("Babbage", "PER")], [("Bath", "LOC")]]
    assert [text.id for text in texts] == ["a", "b"] and texts[1].location.endswith("b.ann, line 1")
    assert [entities(text) for text in read_tagged(tmp_path / "brat/b.ann")] == [[("Bath", "LOC")]]
    write("brat/b.ann", "T1\tLOC 0 2;3 7\tIn Bath\n")
    with pytest.raises(DataError, match=r"b.ann, line 1 has an entity in several parts, 'LOC 0 2;3 7'"):
        list(read_tagged(tmp_path / "brat"))
    write("brat/b.ann", "T1\tLOC 2 6\tBath\n")
    with pytest.raises(DataError, match=r"b.ann, line 1 has the span 2-6, ' Bat', where the annotation is 'Bath'"):
        list(read_tagged(tmp_path / "brat"))
    write("brat/c.ann", "T1\tLOC 0 1\tx\n")
    with pytest.raises(DataError, match=r"c.ann, line 1: there is no c.txt"):
        list(read_tagged(tmp_path / "brat/c.ann"))


def test_labels_of_annotation_tools(write):
    def read(content, kind="class", name="a.jsonl"):
        return [(row.text, row.label) for row in read_labeled_texts(write(name, content), kind)]

    options = {"options": [{"id": "x"}, {"id": "y"}], "answer": "accept", "_task_hash": 1}
    assert read({"text": "a", **options, "accept": ["x"]}) == [("a", "x")]
    assert read({"text": "a", **options, "accept": ["x", "y"]}, "set") == [("a", ("x", "y"))]
    assert read({"text": "a", "label": "x", "answer": "accept", "_task_hash": 1}) == [("a", "x")]
    assert read({"id": 1, "text": "a", "label": ["x"]}) == [("a", "x")]
    assert read({"id": 1, "text": "a", "label": ["x", "y"]}, "set") == [("a", ("x", "y"))]
    with pytest.raises(DataError, match="for several labels use multi-label-classification"):
        read({"id": 1, "text": "a", "label": ["x", "y"]})
    chosen = [{"result": [{"type": "choices", "value": {"choices": ["x"]}}]}]
    assert read([{"data": {"text": "a"}, "annotations": chosen}], name="a.json") == [("a", "x")]
    assert read([{"text": "a", "label": "x"}, {"text": "b", "label": "y"}], name="a.json") == [("a", "x"), ("b", "y")]
    fasttext = "__label__x good __label__y day\n__label__y bad\n\n"
    assert read(fasttext, "set", "a.txt") == [("good day", ("x", "y")), ("bad", ("y",))]
    with pytest.raises(DataError, match="line 2 has no label, which begins with __label__"):
        read("__label__x a\nb\n__label__x c\n__label__x d\n", name="a.txt")


def test_names_in_the_metadata_of_parquet_files(tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    names, tags = datasets.ClassLabel(names=["neg", "pos"]), datasets.ClassLabel(names=["O", "B-PER", "I-PER"])
    features = datasets.Features(
        tokens=datasets.Sequence(datasets.Value("string")), ner_tags=datasets.Sequence(tags),
        text=datasets.Value("string"), label=names,
    )  # fmt: skip
    rows = {"tokens": [["Ada", "B", "ran"]] * 2, "ner_tags": [[1, 2, 0]] * 2, "text": ["a", "b"], "label": [1, -1]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "a.parquet")
    assert [entities(text) for text in read_tagged(tmp_path / "a.parquet")] == [[("Ada B", "PER")]] * 2
    bad = BadRows(skip=True)
    assert [one.label for one in read_labeled_texts(tmp_path / "a.parquet", "class", bad_rows=bad)] == ["pos"]
    assert [row.line for row in bad.rows] == [2] and "has the label None" in bad.rows[0].why


def test_integers_with_names_given(write):
    words = write("a.jsonl", {"tokens": ["Ada", "ran"], "ner_tags": [1, 0]})
    assert [text.tags for text in read_tagged(words, class_names=["O", "B-PER"])] == [("B-PER", "O")]
    with pytest.raises(DataError, match=r"has 1 in 'ner_tags': expected 0 to 0, the label names in order, or one"):
        list(read_tagged(words, class_names=["O"]))
    spans = write("b.jsonl", {"text": "Ada", "annotations": [{"label": 1, "start_offset": 0, "end_offset": 3}]})
    (text,) = read_tagged(spans, columns={"spans": "annotations"}, class_names=["LOC", "PER"])
    assert entities(text) == [("Ada", "PER")]
    table, names = write("c.csv", "text,label\na,1\nb,0\nc,-1\n"), ["neg", "pos"]
    bad = BadRows(skip=True)
    assert [one.label for one in read_labeled_texts(table, "class", class_names=names, bad_rows=bad)] == ["pos", "neg"]
    assert [row.line for row in bad.rows] == [4] and "means no label" in bad.rows[0].why
    hot = write("d.jsonl", {"text": "a", "labels": [0, 1, 1]})
    assert [one.label for one in read_labeled_texts(hot, "set", class_names=["x", "y", "z"])] == [("y", "z")]
    indices = write("e.jsonl", {"text": "a", "labels": [0, 2]})
    assert [one.label for one in read_labeled_texts(indices, "set", class_names=["x", "y", "z"])] == [("x", "z")]
    with pytest.raises(
        DataError, match=r"'labels' holds integers \(\[0, 2\]\): name them, from 0 on, with class_names="
    ):
        list(read_labeled_texts(indices, "set"))


def test_tags_of_several_kinds_are_chosen_by_name(write, capsys):
    row = {
        "id": "0", "tokens": ["Ada", "ran"], "pos_tags": ["NNP", "VBD"], "chunk_tags": ["B-NP", "B-VP"],
        "ner_tags": ["B-PER", "O"],
    }  # fmt: skip
    path = write("a.jsonl", row)
    several = "a.jsonl has ner_tags and pos_tags and chunk_tags: choose one with --columns tags=NAME"
    with pytest.raises(DataError, match=several):
        list(read_tagged(path))
    assert run(["data", str(path)]) == 2 and several in capsys.readouterr().err
    for name in ("pos_tags", "chunk_tags", "ner_tags"):
        assert [text.tags for text in read_tagged(path, columns={"tags": name})] == [tuple(row[name])]
    with pytest.raises(DataError, match="no column 'upos' for the tags; it has id, tokens, pos_tags"):
        list(read_tagged(path, columns={"tags": "upos"}))


def test_spacy_is_asked_for_by_name(write):
    try:
        import spacy
    except ImportError:
        with pytest.raises(DependencyError, match=r"a.spacy is read by spaCy: pip install spacy"):
            list(read_tagged(write("a.spacy", "x")))
        return
    from spacy.tokens import DocBin

    nlp = spacy.blank("en")
    doc = nlp("Ada Byron took 20mg.")
    doc.ents = [doc.char_span(0, 9, "PER"), doc.char_span(15, 17, "DOSE")]
    doc.cats = {"good": 1.0, "bad": 0.0}
    path = write("b.spacy", "")
    DocBin(docs=[doc]).to_disk(path)
    assert [entities(text) for text in read_tagged(path)] == [[("Ada Byron", "PER"), ("20", "DOSE")]]
    assert [one.label for one in read_labeled_texts(path, "class")] == ["good"]
    with pytest.raises(DataError, match="is no DocBin of spaCy"):
        list(read_tagged(write("a.spacy", "x")))


@pytest.mark.parametrize("content", ['[{"text": "\xe9", "label": "a"}]', '[{"paragraphs": [{"sentences": "\xe9"}]}]'])
def test_a_list_in_another_encoding_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=r"a.json, line 1: byte \d+ is not UTF-8; convert the file"):
        list(read_labeled_texts(tmp_path / "a.json", "class"))


def test_columns_that_are_named_make_a_plain_table_of_one_with_words(write):
    path = write("a.csv", "word,sentence,label\nbank,He sat by the bank,river\n")
    with pytest.raises(DataError, match=r"a.csv, read as a word in each row, has no column .* for the text"):
        list(read_labeled_texts(path, "class"))
    (one,) = read_labeled_texts(path, "class", columns={"text": "sentence"})
    assert (one.text, one.label) == ("He sat by the bank", "river")


def test_flat_squad_as_on_the_hub(write):
    rows = [{"id": "q", "context": "the cat", "question": "who?", "answers": {"text": ["cat"], "answer_start": [4]}}]
    for path in (write("a.json", {"version": "1", "data": rows}), write("b.json", rows)):
        assert [one.answer_texts for one in read_questions(path)] == [["cat"]]


def test_a_format_is_registered_with_one_line(write, monkeypatch):
    def rows(path: Path):
        from bertkit.files.tables import Row

        yield Row(1, {"text": path.read_text().removeprefix("%%"), "label": "x"})

    path = write("a.txt", "%%hello")
    monkeypatch.setattr("bertkit.tasks.reading.formats.FORMATS", [*FORMATS, Format("percent", _is_percent, rows)])
    assert format_of(path).name == "percent"
    assert [(one.text, one.label) for one in read_labeled_texts(path, "class")] == [("hello", "x")]


def _is_percent(sample):
    return sample.text.startswith("%%")


@pytest.mark.parametrize(
    ("name", "content", "task", "labels"),
    [
        ("a.jsonl", PRODIGY, "token-classification", {"PER": 1, "DOSE": 1}),
        ("a.tsv", WEBANNO, "token-classification", {"PER": 2, "LOC": 1}),
        ("a.csv", KAGGLE, "token-classification", {"PER": 1, "LOC": 1}),
        ("a.csv", "text,label\na,x\nb,y\nc,x\n", "sequence-classification", {"x": 2, "y": 1}),
        ("a.csv", "text,label\na,\"['x', 'y']\"\nb,[]\n", "multi-label-classification", {"x": 1, "y": 1}),
        ("a.csv", "text,score\na,0.5\n", "regression", {}),
        (
            "a.jsonl",
            {"question": "who?", "context": "the cat", "answers": "cat"},
            "question-answering",
            {"1 answers": 1},
        ),
        ("a.jsonl", {"context": "a", "choices": ["b", "c"], "label": 1}, "multiple-choice", {"1": 1}),
        ("a.conll", "Ada\tPROPN\nran\tVERB\n", "token-classification", {"PROPN": 1, "VERB": 1}),
    ],
)
def test_data_shows_and_converts_files(write, tmp_path, capsys, name, content, task, labels):
    path, ours = write(name, content), tmp_path / "ours.jsonl"
    assert run(["data", str(path), "--out", str(ours)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["task"], shown["labels"]) == (task, labels)
    assert run(["data", str(ours), "--task", task]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {key: again[key] for key in ("labels", "example", "num_examples")} == {
        key: shown[key] for key in ("labels", "example", "num_examples")
    }


def test_data_says_why_a_file_cannot_be_read(write, capsys):
    path = write("a.jsonl", {"tokens": ["Ada"], "ner_tags": [1]})
    assert run(["data", str(path)]) == 2
    assert "token-classification" in (error := capsys.readouterr().err) and "with --label-names" in error
    assert run(["data", str(path), "--label-names", "O", "B-PER"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == {"PER": 1}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", {"text": "Ada ran", "spans": [[0, 2, "PER"]]}, "token-classification: .*'Ad', ends inside a word"),
        ("a.csv", 'text,labels\na,"x,y,"\nb,"x,"\n', r"multi-label-classification: .* \['x', 'y', ''\]"),
        ("a.jsonl", {"question": "who?", "context": "a cat", "answers": ["cat"]}, "question-answering: .* as in SQuAD"),
        (
            "a.tsv",
            "".join(f"ham\ttext {i}\n" for i in range(20)),
            "line 1 has no known column name; it has ham, text 0",
        ),
        ("a.conll", "Ada\tB-PER\t\n", "token-classification: .* does it end in a tab"),
        ("a.csv", "phrase,mood\na,b\n", "^bertkit: [^;]*a.csv, line 1 has no known column name; it has phrase, mood"),
    ],
)
def test_data_does_not_take_broken_labels_for_texts_alone(write, capsys, name, content, reason):
    assert run(["data", str(write(name, content))]) == 2
    assert re.search(reason, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("name", "content", "task"),
    [
        ("a.csv", "sentence1,sentence2,label\na,b,3.8\nc,d,5.000\n", "regression"),
        ("a.jsonl", '{"text": "a", "label": []}\n{"text": "Ada", "label": [[0, 3, "PER"]]}\n', "token-classification"),
        ("a.tsv", "question1\tquestion2\tis_duplicate\na?\tb?\t0\nc?\td?\t1\n", "sequence-classification"),
        ("b.json", [{"context": "a", "choices": ["b", "c"], "label": 1}], "multiple-choice"),
        (
            "a.txt",
            "A text on each line.\n\nAnother one.\nAnd one with many more words.\nAnd one.\n\nA last one.\n",
            "similarity",
        ),
        ("a.txt", "a cat ran .\nthe dog sat .\n" * 60, "similarity"),
    ],
)
def test_data_guesses_the_task_from_all_labels(write, capsys, name, content, task):
    assert run(["data", str(write(name, content))]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == task


def test_a_folder_without_a_row_that_can_be_used_says_why(write):
    write("d/a.txt", "Ada ran")
    folder = write("d/a.ann", "T1\tPER 0 3;4 7\tAda ran\n").parent
    with pytest.raises(
        DataError, match=r"d holds no row that can be used; 1 skipped, the first: .*a.ann, line 1 has an"
    ):
        list(read_tagged(folder, bad_rows=BadRows(skip=True)))


def test_data_says_what_is_wrong_with_columns_of_tags(write, capsys):
    assert run(["data", str(write("a.conll", "Ada B-PER\n")), "--columns", "tag=9"]) == 2
    assert "no column '9' for the tag: expected a number, of 2 columns" in capsys.readouterr().err


def test_data_says_why_tasks_before_the_one_that_is_shown_are_not(write, capsys):
    assert run(["data", str(write("a.csv", "text,label,sentiment\na,1,x\nb,0,y\n"))]) == 0
    assert "sequence-classification: " in (error := capsys.readouterr().err)
    assert "has label and sentiment: choose one with --columns label=NAME" in error
