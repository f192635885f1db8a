"""Options on labels and words on the command line, from files to a served model."""

import json
from pathlib import Path

import pytest
from examples_of_tasks import call, examples, model_of
from random_models import our_model
from served import serving

from bertkit import load
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.tasks import TASKS, SequenceClassification, TokenClassification
from bertkit.tokenizer.layout import Layout

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "the cat-dog sat. one u.s.-based dog"
WORDS_OF = {
    "punctuation": "the cat - dog sat . one u . s . - based dog",
    "spaces": "the cat-dog sat . one u.s.-based dog",
}
NAMES = ("O", "B-ANIMAL", "I-ANIMAL")
FAST = ["--num-epochs", "1", "--batch-size", "4"]


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def spans(path: Path, text: str = TEXT) -> str:
    """Texts with a span inside a word under both rules, "do" of dog, and one around a word under one of them only."""
    rows = [
        {"text": f"{text} {word}", "spans": [[4, 7, "ANIMAL"], [8, 10, "ANIMAL"]]} for word in "the of and un".split()
    ]
    return write(path, rows * 4)


def tagger(folder: Path, names: tuple[str, ...] = NAMES, words: str = "spaces") -> str:
    model_of(TokenClassification(names, scheme="BIO" if "O" in names else "plain", words=words)).save(folder)
    return str(folder)


def teacher(folder: Path, task: TokenClassification | SequenceClassification) -> str:
    model = our_model(task.head, 3, len(task.label_names), num_hidden_layers=3, max_position_embeddings=48)
    model.checkpoint.label_names, model.checkpoint.trained = (
        task.label_names,
        TrainedTask(task, Layout(48, task.on_long)),
    )
    model.save(folder)
    return str(folder)


def test_finetune_to_serve(encoder: Path, tmp_path: Path, capsys) -> None:
    data, out = spans(tmp_path / "a.jsonl"), str(tmp_path / "out")
    base = ["finetune", "token-classification", "--model", str(encoder), "--train", data, "--dev", data, "--out", out]
    code, _, error = call(capsys, *base, *FAST)
    assert code == 2 and "'do', ends inside a word" in error and "; --snap-spans moves all such spans" in error
    code, (result,), error = call(capsys, *base, *FAST, "--snap-spans", "--words", "punctuation", "--scheme", "BIO")
    assert code == 0 and 0 <= result["f1"] <= 1, error
    assert error.count(f"{data}: 32 spans were moved to the borders of words") == 1  # 16 of train, 16 of dev
    assert "words are split by punctuation" in error and load(out).trained.task.words == "punctuation"
    texts = tmp_path / "a.txt"
    texts.write_text(f"{TEXT}\n")
    results = {}
    for words in ([], ["--words", "spaces"]):
        ((row,), _) = call(capsys, "predict", "--model", out, "--input", str(texts), *words)[1:]
        results[len(words)] = [TEXT[start:end] for start, end in row["words"]]
    assert results == {0: WORDS_OF["punctuation"].split(), 2: WORDS_OF["spaces"].split()}
    code, (scores,), error = call(capsys, "evaluate", "--model", out, "--data", data, "--snap-spans")
    assert code == 0 and scores["num_examples"] == 16 and "16 spans were moved" in error
    assert call(capsys, "evaluate", "--model", out, "--data", data)[0] == 2


@pytest.mark.parametrize("rule", ["punctuation", "spaces"])
def test_serve_splits_words_as_asked(tmp_path: Path, rule: str, capsys) -> None:
    model, folder = model_of(TokenClassification(NAMES)), str(tmp_path / "tagger")
    model.network.heads["token_classification"].classifier.bias.data[1] = 99.0  # each word is an entity
    model.save(folder)
    with serving("--model", folder, "--words", rule) as server:
        (answer,) = server.post("/entities", {"inputs": [TEXT]})
    assert [TEXT[entity["start"] : entity["end"]] for entity in answer] == WORDS_OF[rule].split()


def test_serve_refuses_a_rule_of_words_without_a_tagger(tmp_path: Path, capsys) -> None:
    model_of(SequenceClassification(("a", "b"))).save(tmp_path / "classifier")
    for arguments, message in (
        ([str(tmp_path / "classifier"), "--words", "spaces"], "--words requires a tagger"),
        ([tagger(tmp_path / "tagger"), "--words", "commas"], "--words commas: expected one of 'punctuation', 'spaces'"),
    ):
        code, _, error = call(capsys, "serve", "--port", "0", "--model", *arguments)
        assert code == 2 and message in error


def test_check_reads_as_training_does(encoder: Path, tmp_path: Path, capsys) -> None:
    data = spans(tmp_path / "a.jsonl")
    base = ["check", "token-classification", "--model", str(encoder), "--train", data]
    assert "; --snap-spans moves all such spans" in call(capsys, *base)[2]
    code, (result,), error = call(capsys, *base, "--snap-spans")
    assert code == 0 and result["num_examples"] == 16 and "16 spans were moved to the borders of words" in error
    code, _, error = call(capsys, *base, "--snap-spans", "--words", "spaces")
    assert code == 2 and "span overlap in 'cat-dog'" in error
    numbers = write(
        tmp_path / "b.jsonl",
        [{"tokens": ["the", "cat"], "ner_tags": [0, 1]}, {"tokens": ["a", "dog"], "ner_tags": [0, 2]}] * 9,
    )
    base = [
        "check",
        "token-classification",
        "--model",
        str(encoder),
        "--train",
        numbers,
        "--label-names",
        "O",
        "CAT",
        "DOG",
    ]
    code, (result,), error = call(capsys, *base, "--scheme", "plain")
    assert code == 0 and result["num_labels"] == 3, error
    code, _, error = call(capsys, *base[:1], "sequence-classification", *base[2:], "--words", "spaces")
    assert code == 2 and "--words is an option of token-classification, not of sequence-classification" in error


def test_data_reads_with_the_options_of_every_task(tmp_path: Path, capsys) -> None:
    levels = write(tmp_path / "a.jsonl", [{"text": "a", "label": "low"}, {"text": "b", "label": "high"}])
    base = ["data", levels, "--task", "ordinal-regression", "--levels", "low"]
    assert call(capsys, *base, "high")[1][0]["labels"] == {"low": 1, "high": 1}
    code, _, error = call(capsys, *base)
    assert code == 0 and "1 rows cannot be used" in error
    code, _, error = call(capsys, *base, "high", "--snap-spans")
    assert code == 2 and "--snap-spans is an option of token-classification, not of ordinal-regression" in error


ROWS_OF_TASKS = {
    "few-shot-classification": {"text": "a", "label": "x"},
    "siamese-classification": {"text": "a", "pair": "b", "label": "x"},
    "similarity": {"query": "a", "positives": ["b"], "negatives": ["c", "d"]},
    "cross-encoder": {"query": "a", "positives": ["b"], "score": 0.5},
    "alignment": {"text": "a"},
    "seq2seq": {"source": "a", "target": "b"},
    "causal-language-model": {"text": "a"},
    "extraction": {"text": "Ada ran", "spans": [{"start": 0, "end": 3, "label": "person"}]},
}


@pytest.mark.parametrize("task", TASKS)
def test_data_shows_and_writes_the_rows_of_every_task(task: str, tmp_path: Path, capsys) -> None:
    rows = [ROWS_OF_TASKS[task]] if task in ROWS_OF_TASKS else examples(task)
    levels = ["--levels", "bad", "fair", "good"] * (task == "ordinal-regression")
    given, written = write(tmp_path / "given.jsonl", rows), tmp_path / "written.jsonl"
    code, (first,), error = call(capsys, "data", given, "--task", task, *levels, "--out", str(written))
    assert code == 0 and (first["task"], first["num_examples"]) == (task, len(rows)), error
    if task in ROWS_OF_TASKS:
        assert first["example"] == rows[0]
    code, (second,), error = call(capsys, "data", str(written), "--task", task, *levels)
    assert code == 0 and second | {"file": given} == first, error


def test_data_guesses_texts_that_belong_together_and_names_columns_that_no_task_has(tmp_path: Path, capsys) -> None:
    pairs = write(tmp_path / "pairs.jsonl", [{"question": "a", "answer": "b"}] * 2)
    _, (found,), _ = call(capsys, "data", pairs)
    assert (found["task"], found["num_examples"], found["labels"]) == ("similarity", 2, {})
    code, _, error = call(capsys, "data", write(tmp_path / "odd.jsonl", [{"first": "a", "second": "b"}]))
    assert code == 2 and error.count("first, second") == 1 and "--task" in error


def test_integers_with_names_from_training_to_evaluation(encoder: Path, tmp_path: Path, capsys) -> None:
    rows = [{"tokens": ["the", "cat", "sat"], "ner_tags": [0, 1, 0]}, {"tokens": ["un", "dog"], "ner_tags": [3, 4]}]
    data, out = write(tmp_path / "a.jsonl", rows * 6), str(tmp_path / "out")
    names = ["--label-names", "O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    base = ["finetune", "token-classification", "--model", str(encoder), "--train", data, "--dev", data, "--out", out]
    code, (result,), error = call(capsys, *base, *FAST, *names)
    assert code == 0 and "scheme BIO, 2 types: LOC, PER" in error
    assert load(out).trained.task.label_names == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    code, (scores,), error = call(capsys, "evaluate", "--model", out, "--data", data, *names)
    assert code == 0 and scores["f1"] == pytest.approx(result["f1"]), error
    code, _, error = call(capsys, "evaluate", "--model", out, "--data", data)
    assert code == 2 and "name them, from 0 on, with --label-names" in error
    code, _, error = call(capsys, "predict", "--model", out, "--input", data, *names)
    assert code == 2 and "this model has 5 labels, O, B-LOC" in error


def test_labels_without_names_are_given_names_and_words_a_rule(tmp_path: Path, capsys) -> None:
    folder = tagger(tmp_path / "tagger", ("LABEL_0", "LABEL_1", "LABEL_2"))
    data = spans(tmp_path / "a.jsonl")
    arguments = ["evaluate", "--model", folder, "--data", data, "--snap-spans", "--label-names", *NAMES]
    code, (scores,), error = call(capsys, *arguments, "--words", "punctuation")
    assert code == 0 and "f1" in scores, error
    texts = tmp_path / "a.txt"
    texts.write_text(f"{TEXT}\n")
    named = ["predict", "--model", folder, "--input", str(texts), "--label-names", *NAMES, "--words"]
    for rule, number in (("punctuation", 14), ("spaces", 7)):
        (row,) = call(capsys, *named, rule)[1]
        assert len(row["words"]) == number and set(row["labels"]) <= set(NAMES)


def test_options_that_have_no_effect_are_refused(tmp_path: Path, capsys) -> None:
    model_of(SequenceClassification(("a", "b"))).save(tmp_path / "model")
    data = write(tmp_path / "a.jsonl", [{"text": "the cat", "label": "a"}, {"text": "un", "label": "b"}])
    base = ["--model", str(tmp_path / "model"), "--data", data]
    code, _, error = call(capsys, "evaluate", *base, "--snap-spans")
    assert code == 2 and "sequence-classification has no --snap-spans" in error
    code, _, error = call(capsys, "evaluate", *base, "--words", "spaces")
    assert code == 2 and "sequence-classification has no setting 'words'" in error
    code, _, error = call(capsys, "export", *base[:2], "--out", str(tmp_path / "out"), "--snap-spans")
    assert code == 2 and "--snap-spans is for reading a file: give one with --examples" in error


@pytest.mark.parametrize("rule", [None, "punctuation"])
def test_distill_splits_words_as_the_teacher(tmp_path: Path, rule: str | None, capsys) -> None:
    of_teacher = teacher(tmp_path / "teacher", TokenClassification(NAMES, scheme="BIO", words="spaces"))
    data, out = spans(tmp_path / "a.jsonl"), tmp_path / "out"
    base = [
        "distill",
        "--teacher",
        of_teacher,
        "--train",
        data,
        "--dev",
        data,
        "--out",
        str(out),
        "--layers",
        "2",
        *FAST,
    ]
    code, _, error = call(capsys, *base)
    assert code == 2 and "inside a word" in error
    code, _, error = call(capsys, *base, "--snap-spans", *([] if rule is None else ["--words", rule]))
    assert code == 2 if rule is None else code == 0, error
    if rule is None:  # with "spaces" both spans are in one word
        assert "a ANIMAL and a ANIMAL span overlap in 'cat-dog'" in error
    else:
        assert load(out).trained.task.words == rule and "32 spans were moved to the borders of words" in error


def test_distill_with_names_for_numbers(tmp_path: Path, capsys) -> None:
    data = write(
        tmp_path / "a.jsonl",
        [{"text": f"{word} {label}", "label": label} for word in "the of and".split() for label in (0, 1)] * 3,
    )
    for name, labels, expected in (
        ("plain", ("LABEL_0", "LABEL_1"), ("neg", "pos")),
        ("named", ("pos", "neg"), ("pos", "neg")),
    ):
        of_teacher = teacher(tmp_path / name, SequenceClassification(labels))
        arguments = [
            "distill",
            "--teacher",
            of_teacher,
            "--train",
            data,
            "--out",
            str(tmp_path / f"{name}-out"),
            "--layers",
            "2",
            *FAST,
        ]
        code, _, error = call(capsys, *arguments, "--label-names", "neg", "pos")
        assert code == 0, error
        assert load(tmp_path / f"{name}-out").trained.task.label_names == expected


def test_options_on_labels_have_no_effect_on_other_teachers(tmp_path: Path, capsys) -> None:
    our_model("masked_lm", 3, num_hidden_layers=3).save(tmp_path / "masked")
    base = [
        "distill",
        "--teacher",
        str(tmp_path / "masked"),
        "--train",
        "absent",
        "--out",
        str(tmp_path / "out"),
        "--layers",
        "2",
    ]
    code, _, error = call(capsys, *base, "--words", "spaces", "--snap-spans")
    assert code == 2 and "--words, --snap-spans have no effect on a masked LM" in error


def test_export_records_words_and_names(tmp_path: Path, capsys) -> None:
    pytest.importorskip("onnxruntime")
    folder = tagger(tmp_path / "tagger", ("LABEL_0", "LABEL_1", "LABEL_2"))
    out = tmp_path / "out"
    arguments = ["export", "--model", folder, "--out", str(out), "--words", "punctuation", "--label-names", *NAMES]
    code, _, error = call(capsys, *arguments)
    assert code == 0, error
    record = json.loads((out / "export.json").read_text())
    assert record["label_names"] == list(NAMES) and record["task_settings"]["words"] == "punctuation"


def test_int8_export_reads_examples_as_the_model_splits_words(tmp_path: Path, capsys) -> None:
    pytest.importorskip("onnxruntime")
    folder, data = tagger(tmp_path / "tagger"), spans(tmp_path / "a.jsonl")
    base = [
        "export",
        "--model",
        folder,
        "--out",
        str(tmp_path / "out"),
        "--precision",
        "int8",
        "--examples",
        data,
        "--max-loss",
        "1",
    ]
    code, _, error = call(capsys, *base, "--snap-spans")
    assert code == 2 and "span overlap in 'cat-dog'" in error
    code, (result,), error = call(capsys, *base, "--snap-spans", "--words", "punctuation")
    assert code == 0 and result["num_examples"] == 16 and "16 spans were moved" in error
