"""Tags and labels as people write them: read right, or refused with the reason; every guess is a note."""

import json
from functools import partial

import numpy as np
import pytest
from random_models import published_model, save_published, vocabulary_tokens

from bertkit import Tokenizer, load
from bertkit.advice import spelled_alike
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.files.labeled_tables import WITH_TABS
from bertkit.files.lines import read_lines
from bertkit.finetuning.advice import on_rows
from bertkit.tasks import ExampleFile, SequenceClassification, TextExample, TokenClassification
from bertkit.tasks.reading import BadRows, read_labeled_texts, read_questions, read_tagged
from bertkit.tasks.tags import Tags
from bertkit.tasks.words import joined, words_of
from bertkit.tokenizer.layout import Layout

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 1,
    "max_position_embeddings": 48, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
CHINESE = "张三去了北京，在中国人民银行工作。"

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8", newline="")
        return path

    return write_file


def conll(*texts: str) -> str:
    """A CoNLL file of the words w0, w1, ... with tags separated by spaces."""
    return "\n".join("".join(f"w{i}\t{tag}\n" for i, tag in enumerate(text.split())) for text in texts)


# Words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CHINESE, "|".join(CHINESE)),
        ("私はトヨタで働く", "私|は|ト|ヨ|タ|で|働|く"),
        ("ผมอยู่กรุงเทพครับ", "ผ|ม|อ|ยู่|ก|รุ|ง|เ|ท|พ|ค|รั|บ"),
        ("𠀀𠀁ada", "𠀀|𠀁|ada"),
        ("\U0002ebf0\U00030000\U00031350x", "\U0002ebf0|\U00030000|\U00031350|x"),  # extensions I, G and H
        ("🇫🇷ada", "🇫🇷|ada"),
        ("서울(首爾)에서 KAIST를", "서울|(|首|爾|)|에서|KAIST를"),
        ("“北”ada(京).", "“|北|”|ada|(|京|)|."),
        ("我在U.S.工作，“好”！", "我|在|U.S.|工|作|，|“|好|”|！"),
        ("ﾄﾖﾀの〇", "ﾄ|ﾖ|ﾀ|の|〇"),
        ("ភាសា។ ຂ້ອຍ", "ភា|សា|។|ຂ້|ອ|ຍ"),
        ("བོད་ཡིག ဗမာ။", "བོ|ད|་|ཡི|ག|ဗ|မာ|။"),
        ("สวัสดี\u200bครับ", "ส|วั|ส|ดี|ค|รั|บ"),
        ("है। «été» 5†", "है|।|«|été|»|5†"),
    ],
)
def test_scripts_without_spaces_are_split(text, expected):
    assert "|".join(text[start:end] for start, end in words_of(text, "spaces")) == expected


def test_words_are_joined_as_their_script_writes_them():
    for words in (["张", "三", "，"], ["は", "ト"], ["ผ", "ม"]):
        text, spans = joined(words)
        assert text == "".join(words) and [text[start:end] for start, end in spans] == words
    assert joined(["Ada", "在", "北京", "U.S."])[0] == "Ada 在北京 U.S."


def tagger(tmp_path, names=("O", "B-PER", "I-PER")):
    reference = published_model("token_classification", 7, num_labels=len(names), **SHAPE)
    reference.config.id2label = dict(enumerate(names))
    reference.config.label2id = {name: number for number, name in enumerate(names)}
    return save_published(reference, tmp_path / "published")


def test_published_tagger_has_a_tag_for_each_character(tmp_path):
    model = load(tagger(tmp_path), device="cpu")
    chinese, mixed = model.predict([CHINESE, "Ada在北京工作 now."])
    assert len(chinese.labels) == 17 and min(chinese.probabilities) > 0
    assert [mixed.words[0], mixed.words[-2:]] == [(0, 3), ((9, 12), (12, 13))]


@pytest.mark.parametrize("rule", ["spaces", "punctuation"])
def test_evaluation_and_prediction_split_words_alike(tmp_path, write, capsys, rule):
    folder, text = tagger(tmp_path), "ada left the u.s.-based u.n. in p.o. paris-x"
    path = write("a.jsonl", json.dumps({"text": text, "spans": [[0, 3, "PER"]]}))
    model = load(folder, device="cpu")
    model.change_task(words=rule)
    task = model.trained.task
    (example,) = task.read(ExampleFile(path, label_names=task.known_labels, options=task.reading_options))
    (prediction,) = model.predict([text])
    assert example.words == prediction.words and len(prediction.words) == {"spaces": 8, "punctuation": 21}[rule]
    assert task.labeled_example((text, [[0, 3, "PER"]])).words == prediction.words
    assert run(["evaluate", "--model", str(folder), "--data", str(path), "--words", rule]) == 0
    assert "scheme" not in (errors := capsys.readouterr()).err and json.loads(errors.out)["num_examples"] == 1
    assert run(["predict", "--model", str(folder), "--input", str(write("a.txt", text)), "--words", rule]) == 0
    assert len(json.loads(capsys.readouterr().out)["words"]) == len(prediction.words)
    with pytest.raises(UsageError, match="words='commas'"):
        model.change_task(words="commas")


def test_words_inside_one_token_share_its_label():
    tokenizer = Tokenizer.from_vocab([*vocabulary_tokens(99)[:-4], "トヨ", "##タ", "で", "##で"], lowercase=False)
    text, names = "トヨタで cat", ("O", "B-ORG", "I-ORG")
    task = TokenClassification(names, scheme="BIO", words="spaces")
    example = task.labeled_example((text, [[0, 3, "ORG"]]))
    assert example.tags == ("B-ORG", "I-ORG", "I-ORG", "O", "O")
    encodings = task.encode(tokenizer, [example], Layout())
    assert tokenizer.tokens(encodings[0])[1:-1] == ["トヨ", "##タ", "##で", "cat"]
    labels = task.labeled([example], encodings).labels
    assert labels[1:-1].tolist() == [1, 2, 0, 0]
    logits = np.full((len(labels), 3), -9.0, np.float32)
    logits[np.arange(len(labels)), np.maximum(labels, 0)] = 9.0
    (prediction,) = task.decode([example], encodings, logits)
    assert prediction.labels == example.tags and min(prediction.probabilities) > 0.99
    assert [(one.text, one.label) for one in prediction.entities] == [("トヨタ", "ORG")]
    scores, was_read = task.word_scores([example], encodings, logits)
    assert was_read.all() and scores.argmax(axis=1).tolist() == [1, 2, 2, 0, 0]
    half = task.labeled_example((text, [[1, 3, "ORG"]]))  # begins inside the first token
    assert task.labeled([half], encodings).labels[1:-1].tolist() == [1, 2, 0, 0]
    bioes = TokenClassification(("O", "B-X", "I-X", "E-X", "S-X"), scheme="BIOES", words="spaces")
    one = bioes.labeled_example((text, [[0, 2, "X"]]))
    assert one.tags == ("B-X", "E-X", "O", "O", "O") and bioes.labeled([one], encodings).labels[1] == 4
    logits = np.full((len(labels), 5), -9.0, np.float32)
    logits[np.arange(len(labels)), [0, 4, 0, 0, 0, 0]] = 9.0
    assert bioes.decode([one], encodings, logits)[0].labels == one.tags


def test_rule_of_words_is_the_one_that_fits_more_words():
    usual = TokenClassification.example(["in", "New", "-", "York", "."], ["O", "B-L", "I-L", "I-L", "O"])
    decimal = TokenClassification.example(["3.5"], ["O"])
    assert TokenClassification.of_examples([usual, decimal], {}).words == "punctuation"
    assert TokenClassification.of_examples([usual, decimal, decimal], {}).words == "spaces"
    train = [*[usual] * 20, decimal]
    task = TokenClassification.of_examples(train, {})
    assert task.words == "punctuation"
    assert list(task.choices_for(train)) == [
        "scheme BIO, 1 type: L",
        "words are split by punctuation, which fits 99.0% of the training words (spaces 100.0%)",
    ]
    assert TokenClassification.of_examples(train, {"words": "spaces"}).words == "spaces"


def test_spans_inside_words_are_snapped_on_request(write):
    rows = [{"text": "Take 20mg now ", "spans": [[5, 7, "N"], [10, 14, "T"]]}, {"text": "x ", "spans": [[1, 2, "N"]]}]
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"'20', ends inside a word .* 5-9; snap_spans=True moves all such spans"):
        list(read_tagged(path))
    bad = BadRows()
    texts = list(read_tagged(path, snap_spans=True, bad_rows=bad))
    assert [text.tags for text in texts] == [("O", "B-N", "B-T"), ("O",)]
    assert bad.noted() == [f"{path}: 3 spans were moved to the borders of words"]


# Tags


@pytest.mark.parametrize(
    ("content", "expected", "note"),
    [
        (
            conll("B_PER I_PER O", "B_LOC"),
            [("B-PER", "I-PER", "O"), ("B-LOC",)],
            "BIO, written as B_TYPE, 2 types: LOC",
        ),
        (conll("PER-B PER-I O", "LOC-B"), [("B-PER", "I-PER", "O"), ("B-LOC",)], "BIO, written as TYPE-B, 2 types"),
        (conll("PER_B PER_I O"), [("B-PER", "I-PER", "O")], "BIO, written as TYPE_B, 1 type: PER"),
        (conll("B-PER M-PER E-PER S-LOC O"), [("B-PER", "I-PER", "E-PER", "S-LOC", "O")], "BIOES, 2 types: LOC, PER"),
        (conll("B-P M-P E-P W-L O"), [("B-P", "I-P", "E-P", "S-L", "O")], "BIOES, 2 types: L, P"),
        (conll("B M E S"), [("B", "I", "E", "S")], "BIOES, 1 type: _"),
        (conll("I-P E-P O E-L"), [("B-P", "I-P", "O", "B-L")], "IOE2, 2 types: L, P"),
        (conll("I-P E-P I-P O I-L"), [("B-P", "I-P", "B-P", "O", "B-L")], "IOE1, 2 types: L, P"),
        (conll("PER PER O O"), [("PER", "PER", "O", "O")], "names, 1 type: PER"),
        ("Ada\tB-PER \nB.\tI-PER\nran\t O\n", [("B-PER", "I-PER", "O")], "BIO, 1 type: PER"),
        (conll("B-PER I-PER O").replace("\n", "\r"), [("B-PER", "I-PER", "O")], "BIO, 1 type: PER"),
        (conll("DET NOUN"), [("DET", "NOUN")], "plain labels, 2: DET, NOUN"),
        ("# id a\tdomain=en\nAda _ _ B-P\n\n# id b\nx _ _ O\n", [("B-P",), ("O",)], "scheme BIO, 1 type: P"),
        (conll("B:PER I:PER O", "B:LOC"), [("B-PER", "I-PER", "O"), ("B-LOC",)], "BIO, written as B:TYPE, 2 types"),
        (conll("PER/B PER/I O"), [("B-PER", "I-PER", "O")], "BIO, written as TYPE/B, 1 type: PER"),
        (conll("a:b c:d O"), [("a:b", "c:d", "O")], "names, 2 types: a:b, c:d"),
        ("# O\nAda B-P\n#x O\n", [("O", "B-P", "O")], "scheme BIO, 1 type: P"),
        ("# sent_1\nAda B-P\n\n# 7\nx O\n", [("B-P",), ("O",)], "lines with # at their start were read as comments: 2"),
    ],
)
def test_tags_in_every_notation(write, content, expected, note):
    bad = BadRows()
    assert [text.tags for text in read_tagged(write("a.conll", content), bad_rows=bad)] == expected
    assert any(note in sentence for sentence in bad.noted())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (conll("B-PER I-PER o", "B-LOC o"), r"line 1: the tag 'o' of word 3, 'w2', .* did you mean 'O'\?"),
        (conll("B-PER I-PER 0", "B-LOC O"), r"the tag '0' of word 3, .* did you mean 'O'\?"),
        (conll("B-PER I-PER \u041e"), r"the tag '\u041e' of word 3, .* did you mean 'O'\?"),
        (conll("B-PER I-PER OTHER"), r"the tag 'OTHER' of word 3, .* did you mean 'O'\?"),
        (conll("B-PER X-PER O"), r"the tag 'X-PER' of word 2, .* did you mean 'B-PER'\?"),
        (conll("B-PER I_PER O"), r"the tag 'I_PER' of word 2, .* did you mean 'B-PER'\?"),
        (conll("O B-PER PER O"), r"the tag 'PER' of word 3, .* did you mean 'B-PER'\?"),
        (conll("b-PER B-PER O"), r"the tag 'b-PER' of word 1, .* did you mean 'B-PER'\?"),
        (conll("b-per i-per o", "b-loc o"), r"line 1: the tag 'b-per' of word 1, .* did you mean 'B-per'\?"),
        (conll("o per-b per-i"), r"line 1: the tag 'o' of word 1, .* did you mean 'O'\?"),
        (conll("B-PER|B-ORG I-PER O"), r"line 1: word 1 has the tags 'B-PER\|B-ORG', but each word is in one entity"),
        (conll("S_PER O B_LOC E_LOC", "B-PER O S_PER"), r"line 6: the tag 'B-PER' of word 1, .* mean 'S_PER'\?"),
        ("Ada\tB-PER\t\nran\tO\t\n", r"line 1 has an empty field, the tag: 'Ada.tB-PER.*does it end in a tab\?"),
        ("Ada\tB-PER\n\tO\n", r"line 2 has an empty field, the word: '.tO'"),
    ],
)
def test_slips_in_tags_are_refused_with_the_tag_that_is_meant(write, content, message):
    with pytest.raises(DataError, match=message):
        list(read_tagged(write("a.conll", content)))


@pytest.mark.parametrize(
    ("content", "words", "tags", "note"),
    [
        (
            "#\thttp://x\n1\tAda\tB-PER\tO\n2\tran\tO\tO\n\n#\thttp://y\n1\tBath\tB-LOC\tB-ORG\n",
            ["Ada ran", "Bath"],
            [("O", "O"), ("B-ORG",)],
            ["the first column counts the words, which are in the second",
             "column 3 has tags too: the last column was taken, --columns tag=3 takes another"],
        ),
        ("0 Ada B-PER\n1 ran O\n", ["Ada ran"], [("B-PER", "O")], ["the first column counts the words"]),
        ("1 CD B-NUM\n3 CD O\n", ["1 3"], [("B-NUM", "O")], []),
        ("Ada NNP B-NP B-PER\nran VBD B-VP O\n", ["Ada ran"], [("B-PER", "O")], ["column 3 has tags too"]),
        ("1 B-NUM\n", ["1"], [("B-NUM",)], []),
    ],
)  # fmt: skip
def test_columns_of_words_and_tags(write, content, words, tags, note):
    bad = BadRows()
    texts = list(read_tagged(write("a.tsv", content), bad_rows=bad))
    assert [text.text for text in texts] == words and [text.tags for text in texts] == tags
    noted = [sentence for sentence in bad.noted() if " column" in sentence]
    assert len(noted) == len(note) and all(part in sentence for part, sentence in zip(note, noted, strict=True))
    (first, *_) = read_tagged(write("a.tsv", content), columns={"word": "1"})
    assert first.text[0] == next(line[0] for line in content.split("\n") if line[0] != "#")


def test_every_reader_accepts_lines_that_end_in_cr(write):
    assert [one.label for one in read_labeled_texts(write("a.tsv", "text\tlabel\rhi\ta\rho\tb\r"), "class")] == [
        "a",
        "b",
    ]
    table = read_labeled_texts(write("a.csv", 'text,label\rhi,a\r"h\ro",b\r'), "class")
    assert [(one.text, one.location[-6:]) for one in table] == [("hi", "line 2"), ("h\ro", "line 3")]
    rows = '{"text": "a b", "spans": []}\r{"text": "c", "spans": [[0, 1, "X"]]}\r'
    assert [one.tags for one in read_tagged(write("a.jsonl", rows))] == [("O", "O"), ("B-X",)]
    assert [one.text for one in read_labeled_texts(write("a.txt", "a\rb\r"), None)] == ["a", "b"]
    assert [one.text for one in read_labeled_texts(write("b.txt", "a\nb\rc\n"), None)] == ["a", "b\rc"]


def test_models_with_names_in_other_notations(tmp_path, write):
    names = ("O", "B_PER", "I_PER", "B_LOC", "I_LOC")
    tags = Tags(names, "BIO")
    assert tags.types == ("LOC", "PER") and tags.entities([1, 2, 0, 3], [0, 4]).tolist() == [[0, 2, 1], [3, 4, 0]]
    task = TokenClassification.of_published(names, None)
    assert task is not None and task.scheme == "BIO"
    path = write("a.conll", conll("B-PER I-PER O"))
    (text,) = task.read(ExampleFile(path, label_names=names, options=task.reading_options))
    assert text.tags == ("B_PER", "I_PER", "O") and task.targets([text]).tolist() == [1, 2, 0]
    assert task.labeled_example(("Ada ran", [[0, 3, "LOC"]])).tags == ("B_LOC", "O")
    suffix = TokenClassification.of_published(("O", "PER-S", "PER-B", "PER-M", "PER-E"), None)
    assert suffix is not None and suffix.scheme == "BIOES" and suffix._tags().types == ("PER",)
    bare = TokenClassification.of_published(("LOC", "O", "PER"), None)
    assert bare is not None and bare.scheme == "names" and bare._tags().entities([2, 2, 1, 0], [0, 4]).tolist() == [
        [0, 2, 1], [3, 4, 0],
    ]  # fmt: skip
    trained = TokenClassification.of_examples([TokenClassification.example(["a", "b"], ["B_X", "O"])], {})
    assert trained.label_names == ("O", "B_X", "I_X")


# Labels of texts


def labels_of(path, kind="set", **options):
    bad = BadRows()
    return [one.label for one in read_labeled_texts(path, kind, bad_rows=bad, **options)], " ".join(bad.noted())


@pytest.mark.parametrize(
    ("values", "expected", "note"),
    [
        (
            ["\"['pos', 'long']\"", "\"['neg']\"", "[]"],
            [("pos", "long"), ("neg",), ()],
            "3 rows have their labels as a list",
        ),
        (['"[""a"", ""b""]"', "nan"], [("a", "b"), ()], "1 rows have 'nan' in 'labels', which was read as no label"),
        (["\"['a' 'b']\"", ""], [("a", "b"), ()], "as a list in text"),
        (["\"('a', 'b')\"", "a"], [("a", "b"), ("a",)], "as a list in text"),
        (['"x,y"', "x", '"y, z"'], [("x", "y"), ("x",), ("y", "z")], "separated by ','; 3 labels: x, y, z"),
        (["x;y", "x"], [("x", "y"), ("x",)], "separated by ';'; 2 labels: x, y"),
        (["x|y", '"x,z"'], [("x", "y"), ("x,z",)], ""),
        (["None", "x"], [(), ("x",)], "1 rows have 'None'"),
    ],
)
def test_several_labels_in_one_column(write, values, expected, note):
    path = write("a.csv", "text,labels\n" + "".join(f"t,{value}\n" for value in values))
    labels, notes = labels_of(path)
    assert labels == expected and note in notes


def test_unclear_separators_are_refused_with_the_option(write):
    for content in ('t,"x,y"\nt,"z,w"\n', 't,"x,y"\nt,x;z\n'):
        path = write("a.csv", f"text,labels\n{content}")
        with pytest.raises(
            DataError, match=r"line 2 has 'x,y' in 'labels': one label, or several\? .*label_separator="
        ):
            labels_of(path)
        assert labels_of(path, label_separator=",")[0][0] == ("x", "y")
        assert labels_of(path, label_separator="|")[0][0] == ("x,y",)
        assert labels_of(path, label_names=["x", "y", "z", "w", "x;z"])[0][0] == ("x", "y")
    with pytest.raises(DataError, match="expected a list of names in JSON or Python"):
        labels_of(write("b.csv", "text,labels\nt,[x]\n"))
    _, notes = labels_of(write("c.csv", "text,label\nt,x|y\nt,x\n"), "class")
    assert "labels such as 'x|y' count as one class each: for several use multi-label-classification" in notes


@pytest.mark.parametrize(("yes", "no"), [("yes", "No"), ("1.0", "0.0"), ("True", "False"), (" 1", "0 "), ("true", "0")])
def test_one_hot_columns(write, yes, no):
    path = write("a.csv", f"text,p,q\na,{yes},{no}\n")
    assert labels_of(path, columns={"label": "p,q"})[0] == [("p",)]
    with pytest.raises(DataError, match="line 2 has '2' in 'p': expected 0 or 1"):
        labels_of(write("a.csv", "text,p,q\na,2,0\n"), columns={"label": "p,q"})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["pos", "-1", "neg"], ["pos", "neg"]),
        (["0", "1", "2", "-1"], ["0", "1", "2"]),
        (["-", "pos"], ["pos"]),
        (["a", "-100", ""], ["a"]),
        (["a", "nan", "NaN", "<NA>"], ["a"]),
        (["a", "N/A"], ["a", "N/A"]),
        (["a", "?", "b"], ["a", "?", "b"]),
        (["none", "some"], ["none", "some"]),
        (["1", "0", "-1"], ["1", "0", "-1"]),
        (["1", "-1"], ["1", "-1"]),
        (["+", "-"], ["+", "-"]),
        (["-2", "-1", "0"], ["-2", "-1", "0"]),
    ],
)
def test_no_label_is_skipped_and_counted(write, values, expected):
    path = write("a.csv", "text,label\n" + "".join(f"t,{value}\n" for value in values))
    bad = BadRows(skip=True)
    assert [one.label for one in read_labeled_texts(path, "class", bad_rows=bad)] == expected
    assert len(bad.rows) == len(values) - len(expected)
    for doubtful in ("-1", "N/A", "?", "none"):
        noted = any(f"the label {doubtful}, which counts as a class" in sentence for sentence in bad.noted())
        assert noted == (doubtful in expected)
    if bad.rows:
        with pytest.raises(DataError, match=r"means no label|expected a name"):
            labels_of(path, "class")


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("text,score\na,1_5\n", "number", r"line 2 has the target '1_5'"),
        ('text,score\na,"1,234.5"\n', "number", r"write decimals with a point, thousands without commas"),
    ],
)
def test_numbers_that_python_alone_would_read(write, content, kind, message):
    with pytest.raises(DataError, match=message):
        labels_of(write("a.csv", content), kind)


def test_tabs_and_quotes_of_tables(write):
    tabs = write("a.csv", '"a\tb",0\n"c",1\n')
    texts = read_labeled_texts(tabs, "class", columns={"text": "1", "label": "2"})
    assert [(one.text, one.label) for one in texts] == [("a\tb", "0"), ("c", "1")]
    path = write("a.tsv", 'text\tlabel\n"she said ""ok"""\tx\n"so"\tx\n')
    assert "1 texts are in quotes, which are text in a tsv file: save it as csv" in labels_of(path, "class")[1]


def test_labels_that_look_the_same():
    for first, second in (
        ("caf\u00e9", "cafe\u0301"), ("\ufeffspam", "spam"), ("don't", "don’t"), ("a\u200bb", "ab"), ("Ａ", "a"),
        ("x y", "x\u00a0y"), ("B-PER", "B-Per"),
    ):  # fmt: skip
        assert "spelled in several ways" in (sentence := spelled_alike([first, second, "other"])), (first, second)
        assert "other" not in sentence
    assert r"'café' and 'cafe\u0301'" in spelled_alike(["caf\u00e9", "cafe\u0301"])
    assert spelled_alike(["a b", "a_b", "ab", "a-b"]) == ""
    tags = [TokenClassification.example(["a", "b"], ["B-PER", "B-Per"])] * 2
    assert any("'B-PER' and 'B-Per'" in line for line in on_rows(TokenClassification.of_examples(tags, {}), tags, []))


def test_unknown_label_that_looks_like_a_known_one(write):
    path = write("a.csv", "text,label\na,cafe\u0301\n")
    with pytest.raises(DataError, match=r"the label 'cafe\\u0301', which .*; did you mean 'caf\\xe9'\?"):
        labels_of(path, "class", label_names=["caf\u00e9", "bar"])


def test_models_without_label_names_are_given_names(tmp_path, write, capsys):
    reference = published_model("sequence_classification", 7, num_labels=2, **SHAPE)
    folder = save_published(reference, tmp_path / "published")
    numbers, names = write("a.csv", "text,label\na,1\nb,0\n"), write("b.csv", "text,label\na,pos\nb,neg\n")
    results = []
    for arguments in (
        [str(numbers)],
        [str(numbers), "--label-names", "neg", "pos"],
        [str(names), "--label-names", "neg", "pos"],
    ):
        assert run(["evaluate", "--model", str(folder), "--data", *arguments]) == 0
        results.append(json.loads((shown := capsys.readouterr()).out)["accuracy"])
        assert ("read as LABEL_ and the number" in shown.err) == (len(arguments) == 1)
    assert len(set(results)) == 1
    model = load(folder, device="cpu")
    model.change_task(label_names=["neg", "pos"])
    assert model.predict(["a"])[0].label in ("neg", "pos")
    for wrong in (["a"], ["a", "a"], ["a", "b", "c"]):
        with pytest.raises(
            UsageError, match="this model has 2 labels, LABEL_0, LABEL_1; expected these, or for LABEL_0"
        ):
            load(folder, device="cpu").change_task(label_names=wrong)
    with pytest.raises(UsageError, match="this model has 2 labels, neg, pos"):
        model.change_task(label_names=["bad", "good"])


def test_answers_without_a_position_are_whole_words(write):
    def rows(*pairs):
        return "".join(json.dumps({"question": "q", "context": c, "answer": a}) + "\n" for c, a in pairs)

    bad = BadRows()
    content = rows(
        ("Concatenation is hard. The cat sat.", "cat"), ("a cat, a cat", "cat"), ("Concat", "cat"), ("$5", "$5")
    )
    path = write("a.jsonl", content)
    starts = [one.answers for one in read_questions(path, bad_rows=bad)]
    assert starts == [((27, 30),), ((2, 5),), ((3, 6),), ((0, 2),)]
    assert bad.noted() == [
        f"{path}: 1 answers without answer_start occur several times: the first was taken",
        f"{path}: 1 answers without answer_start occur only inside other words",
    ]
    with pytest.raises(DataError, match="line 2: the answer is 'nan', as tables have it for a missing value"):
        list(read_questions(write("b.csv", "question,context,answer\nwho,the nan cat,nan\n")))


def test_the_log_names_the_labels():
    task = SequenceClassification.of_examples([TextExample("a", label=name) for name in ("x", "y", "x", "y")], {})
    assert list(task.choices_for([])) == ["2 labels: x, y"]


def test_answers_in_other_letters_or_lines_than_their_context(write):
    for context, answer in (
        ("The Cat sat.", "the cat"), ("The cat\nsat down.", "cat sat"), ("The cat  sat.", "cat sat"),
        ("STRASSE", "straße"),
    ):  # fmt: skip
        rows = [{"question": "q", "context": context, "answers": {"text": [answer], "answer_start": [0]}}]
        for path in (
            write("a.jsonl", json.dumps(rows[0])),
            write("a.csv", f'question,context,answer\nq,"{context}","{answer}"\n'),
        ):
            with pytest.raises(
                DataError, match=rf"line \d: the answer {answer!r} is not in its context: correct it, or"
            ):
                list(read_questions(path))


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("a.csv", "text,label\na,x\nb,y\n", lambda path: read_labeled_texts(path, "class")),
        ("a.csv", "text,labels\na,x|z\nb,y\n", lambda path: read_labeled_texts(path, "set")),
        ("a.jsonl", '{"text": "a", "labels": [[0, 1, "X"]]}\n' * 2, read_tagged),
        ("a.jsonl", '{"words": ["a"], "tags": ["B-X"]}\n' * 2, read_tagged),
        ("a.conll", "# x y z\na\tB-X\n\n# 7\nb\tO\n", read_tagged),
        ("a.conllu", "# text = a\n1\ta\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n2\ta\t_\tX\t_\t_\t_\t_\t_\t_\n", read_tagged),
        (
            "a.tsv",
            "#FORMAT=WebAnno TSV 3.3\n#T_SP=NamedEntity|value\n\n#Text=a\n1-1\t0-1\ta\tX\n\n#Text=b\n2-1\t0-1\tb\t_\n",
            read_tagged,
        ),
        ("a.csv", "sentence,word,tag\n1,a,O\n2,b,B-X\n", read_tagged),
        ("a.txt", "__label__x a\n__label__y b\n", lambda path: read_labeled_texts(path, "class")),
    ],
)  # fmt: skip
def test_labeled_files_are_read_once(write, monkeypatch, name, content, read):
    path, numbers = write(name, content), []

    def counted(file, path):
        for line in read_lines(file, path):
            numbers.append(line.number)
            yield line

    monkeypatch.setattr("bertkit.files.lines.read_lines", counted)
    assert len(list(read(path))) == 2
    assert numbers == list(range(1, content.count("\n") + 1))


def test_labels_of_spans_are_stripped(write):
    path = write("a.jsonl", json.dumps({"text": "Ada ran", "spans": [[0, 3, " PER "]]}))
    assert [one.tags for one in read_tagged(path)] == [("B-PER", "O")]
    with pytest.raises(DataError, match=r"the span \[0, 3, ' '\] is invalid"):
        list(read_tagged(write("b.jsonl", json.dumps({"text": "Ada ran", "spans": [[0, 3, " "]]}))))


BOM = "\ufeff"


@pytest.mark.parametrize("header", ["token\ttag\n", "Word NER\n", "\ufeffTokens\tLabels\r\n"])
def test_a_header_of_a_conll_file_is_no_word(write, header):
    bad = BadRows()
    (one,) = read_tagged(write("a.conll", f"{header}word\tNOUN\n{header.removeprefix(BOM)}tag\tNOUN\n"), bad_rows=bad)
    assert (one.text, one.tags) == ("word tag", ("NOUN", "NOUN"))
    assert any("the first line was read as a header: " in sentence for sentence in bad.noted())


def test_numbers_of_columns_with_gaps(write):
    path = write("a.csv", "question,context,answer,answer_start\nwho?,cat and cat,cat,8.0\nwho?,a cat,,\n")
    assert [one.answers for one in read_questions(path)] == [((8, 11),), ()]
    row = {"question": "who?", "context": "cat and cat", "answers": {"text": ["cat"], "answer_start": [8.0]}}
    for name in ("a.jsonl", "b.json", "c.ndjson"):
        assert [one.answers for one in read_questions(write(name, json.dumps(row) + "\n"))] == [((8, 11),)]
    path = write("b.jsonl", '{"text": "a", "labels": [1.0, 0.0]}\n{"text": "b", "labels": [0.0, 1.0]}\n')
    assert [one.label for one in read_labeled_texts(path, "set", class_names=["x", "y"])] == [("x",), ("y",)]
    path = write("c.jsonl", '{"text": "a", "label": 1.0}\n{"text": "b", "label": 0.5}\n')
    rows = read_labeled_texts(path, "class", class_names=["x", "y"])
    assert next(rows).label == "y"
    with pytest.raises(DataError, match=r"line 2 has 0.5 in 'label': expected 0 to 1"):
        next(rows)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[0, 1]/[1]", [("x", "y"), ("y",)]),  # numbers of classes
        ("[0, 1]/[1, 0]/", [("y",), ("x",), ()]),  # a bit for each class
        ("[0 1]/[1 1]", [("y",), ("x", "y")]),
        ("x|1.0/0", [("x", "y"), ("x",)]),
    ],
)
def test_lists_are_numbers_of_classes_or_bits_in_all_rows(write, content, expected):
    values, bad = content.split("/"), BadRows()
    csv = write("a.csv", "text,labels\n" + "".join(f'a,"{value}"\n' for value in values))
    assert [one.label for one in read_labeled_texts(csv, "set", class_names=["x", "y"], bad_rows=bad)] == expected
    are_bits = any("labels are lists of 0 and 1, one for each of the names" in sentence for sentence in bad.noted())
    assert are_bits == (expected[0] == ("y",))
    if content.startswith("[0, "):
        rows = [{"text": "a", "labels": json.loads(value) if value else None} for value in values]
        lines = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        assert [one.label for one in read_labeled_texts(lines, "set", class_names=["x", "y"])] == expected


def test_names_of_labels_are_not_ignored(write):
    names, path = ["O", "B-PER"], write("a.conll", "Ada 1\nran 0\n\nBath O\n")
    assert [one.tags for one in read_tagged(path, class_names=names)] == [("B-PER", "O"), ("O",)]
    for content, value in (("Ada 2\n", "2"), ("Ada B-LOC\n", "B-LOC")):
        with pytest.raises(DataError, match=f"line 1 has '{value}' in 'the tags': expected 0 to 1, the label names in"):
            list(read_tagged(write("a.conll", content), class_names=names))
    path = write("a.csv", "text,label\na,1.0\nb,no\nc,good\n")
    rows = read_labeled_texts(path, "class", class_names=["no", "yes"])
    assert [next(rows).label, next(rows).label] == ["yes", "no"]
    with pytest.raises(
        DataError, match="line 4 has 'good' in 'label': expected 0 to 1, the label names in order, or one"
    ):
        next(rows)


def test_an_empty_set_of_python_is_no_label(write):
    path = write("a.csv", "text,labels\na,\"{'x', 'y'}\"\nb,set()\n")
    assert [one.label for one in read_labeled_texts(path, "set")] == [("x", "y"), ()]


def test_lines_with_tabs_that_are_texts_are_noted(write):
    path = write("a.txt", "the cat\tpos\nthe dog\tneg\n")
    for read in (partial(read_labeled_texts, kind=None), partial(read_tagged, labeled=False)):
        bad = BadRows()
        assert [one.text for one in read(path, bad_rows=bad)] == ["the cat\tpos", "the dog\tneg"]
        assert bad.noted() == [f"{path}: {WITH_TABS}"]
    assert next(iter(read_labeled_texts(path, None, columns={"text": "1"}))).text == "the cat"


def test_a_txt_file_of_words_with_tags_is_not_read_as_a_text_on_each_line(write):
    for content in ("Ada B-PER\nran O\n\nBath O\n", "-DOCSTART-\n\nAda\tx\tPER\nran\tx\tO\n\nBath\tx\tO\n"):
        path, bad = write("a.txt", content), BadRows()
        assert [one.text for one in read_tagged(path, labeled=False, bad_rows=bad)] == ["Ada ran", "Bath"]
        assert bad.noted() == [f"{path}: read as CoNLL, with a tag at the end of each line"]
    texts = ["Ada ran", "Bill O", "it is O"]
    assert [one.text for one in read_tagged(write("b.txt", "\n".join(texts)), labeled=False)] == texts
    assert next(read_tagged(write("c.txt", "NOUN Ada\n"), labeled=False, columns={"word": "2"})).text == "Ada"


def test_a_separator_without_characters_is_refused(write):
    with pytest.raises(UsageError, match="label_separator='': expected the characters between two labels"):
        list(read_labeled_texts(write("a.csv", "text,labels\na,x\n"), "set", label_separator=""))
