"""Zero-shot classification: the probabilities of transformers' pipeline, labels matched by name, any architecture."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from examples_of_tasks import call, model_of
from families import FAMILIES

import bertkit
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import OverLengthError, TruncationWarning, UsageError
from bertkit.inference.zero_shot import InferenceLabels
from bertkit.tasks import SequenceClassification, TokenClassification
from bertkit.tokenizer.layout import Layout

TEXTS = ["a cat sat", "the dog ran and ran one two", "blue", ""]
LABELS = ["dog", "red mat", "one two"]
ORDERS = [  # of labels, as published models have them
    ("contradiction", "entailment", "neutral"),
    ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
    ("entailment", "neutral", "contradiction"),
    ("entailment", "not_entailment"),
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("names", ORDERS)
def test_probabilities_equal_the_pipeline_of_transformers(
    tmp_path: Path, names: tuple[str, ...], multi_label: bool
) -> None:
    model_of(SequenceClassification(names)).save(tmp_path / "model")
    pipeline = transformers.pipeline(  # in float64, as its float32 is off by up to 1e-6
        "zero-shot-classification", model=str(tmp_path / "model"), device="cpu", dtype=torch.float64
    )
    model = bertkit.load(tmp_path / "model")
    predictions = model.classify(TEXTS, LABELS, multi_label=multi_label, template="the {}")
    for text, prediction in zip(TEXTS[:-1], predictions, strict=False):  # the pipeline refuses an empty text
        expected = pipeline(text, LABELS, multi_label=multi_label, hypothesis_template="the {}")
        assert list(prediction.probabilities) == expected["labels"]
        np.testing.assert_allclose(list(prediction.probabilities.values()), expected["scores"], atol=1e-6)
        if multi_label:
            assert prediction.labels == tuple(n for n, p in prediction.probabilities.items() if p >= 0.5)
        else:
            assert prediction.label == expected["labels"][0]
    assert len(predictions) == len(TEXTS)
    assert model.classify(TEXTS[1], LABELS, multi_label=multi_label, template="the {}") == predictions[1]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_entailment_is_identified_by_name(order: tuple[int, ...]) -> None:
    names = np.array(["Contradiction", "entailment", "neutral"])
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    for multi_label in (False, True):
        expected = InferenceLabels(1, (0,)).probabilities(logits, multi_label=multi_label)
        columns = InferenceLabels.of(names[list(order)].tolist())
        assert columns is not None
        np.testing.assert_allclose(columns.probabilities(logits[:, order], multi_label=multi_label), expected)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("roberta", "deberta-v2"))) for name in FAMILIES],
)
def test_every_architecture_classifies(name: str) -> None:
    family = FAMILIES[name]
    if "sequence_classification" not in family.kinds:
        pytest.skip("no published class for sequences")
    model = family.our_model("sequence_classification", 1, num_labels=3)
    task = SequenceClassification(ORDERS[0])
    model.checkpoint.trained = TrainedTask(task, Layout(16, task.on_long))
    (prediction,) = model.classify(["a cat sat"], LABELS, multi_label=True, template="{}")
    for label, score in prediction.probabilities.items():
        (pair,) = model.predict([("a cat sat", label)])
        entailed, opposed = (pair.probabilities[name] for name in ("entailment", "contradiction"))
        assert score == pytest.approx(entailed / (entailed + opposed), abs=1e-6)


def test_long_texts_are_cut_or_refused() -> None:
    model = model_of(SequenceClassification(ORDERS[0]))
    long = "the dog ran and ran one two " * 40
    with pytest.warns(TruncationWarning, match="2 of 2"):
        model.classify(long, LABELS[:2])
    report = bertkit.InferenceReport()
    model.classify(long, LABELS, report=report)
    assert report.num_texts == report.num_texts_cut == len(LABELS)
    with pytest.raises(UsageError, match="'truncate' or 'error'"):
        model.classify(long, LABELS, on_long="window")
    with pytest.raises(OverLengthError):
        model.classify(long, LABELS, on_long="error")


@pytest.mark.parametrize(
    ("labels", "options", "problem"),
    [
        ([], {}, "expected a list of names"),
        ("dog", {}, "expected a list of names"),
        (["dog", " "], {}, "none of them empty"),
        (["dog", "cat", "dog"], {}, "'dog' is given more than once"),
        (["dog"], {}, "at least two, or multi_label=True"),
        (["dog", "cat"], {"template": "about"}, "expected a sentence with {}"),
    ],
)
def test_invalid_labels_raise(labels: list[str], options: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        model_of(SequenceClassification(ORDERS[0])).classify(TEXTS, labels, **options)


def test_labels_in_an_array() -> None:
    model = model_of(SequenceClassification(ORDERS[0]))
    assert model.classify(TEXTS[2:], np.array(LABELS)) == model.classify(TEXTS[2:], LABELS)


def test_table_instead_of_texts_raises() -> None:
    with pytest.raises(UsageError, match="got a DataFrame: pass one of its columns"):
        model_of(SequenceClassification(ORDERS[0])).classify(pd.DataFrame({"the": ["cat"]}), LABELS)


def test_models_without_entailment_raise() -> None:
    with pytest.raises(UsageError, match="labels here: blame, praise"):
        model_of(SequenceClassification(("blame", "praise"))).classify(TEXTS, LABELS)
    with pytest.raises(UsageError, match="natural language inference"):
        model_of(TokenClassification(("B-animal", "O"))).classify(TEXTS, LABELS)
    with pytest.raises(UsageError, match="a text is int"):
        model_of(SequenceClassification(ORDERS[0])).classify([3], LABELS)
    assert model_of(SequenceClassification(ORDERS[0])).classify([], LABELS) == []


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model_of(SequenceClassification(ORDERS[0])).save(tmp_path / "model")
    template = ["--template", "the {}"]
    folder, expected = (
        str(tmp_path / "model"),
        bertkit.load(tmp_path / "model").classify(TEXTS[:3], LABELS, template="the {}"),
    )
    code, rows, _ = call(capsys, "classify", TEXTS[0], "--labels", "dog, red mat,one two", "--model", folder, *template)
    assert code == 0 and {row["label"]: row["score"] for row in rows} == expected[0].probabilities
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:3]))
    source = ["--input", str(tmp_path / "texts.jsonl")]
    code, rows, _ = call(capsys, "classify", *source, "--labels", ",".join(LABELS), "--model", folder, *template)
    assert code == 0 and [row["probabilities"] for row in rows] == [each.probabilities for each in expected]
    for arguments in ([], [TEXTS[0], *source]):
        code, _, message = call(capsys, "classify", *arguments, "--labels", "a,b", "--model", folder)
        assert code == 2 and "give a text, or a file of texts with --input: one of the two" in message
    code, _, message = call(capsys, "classify", "a", "--labels", "a,b", "--model", folder, "--column", "text")
    assert code == 2 and "--column names a column of a file" in message
