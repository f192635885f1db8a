"""Tasks over texts: the losses of torch and transformers, typed predictions, labels by name, files."""

import json
import math
from dataclasses import asdict, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
import transformers
from random_models import edit_json, error, our_model

from bertkit import Model, load
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import CheckpointError, DataError, MissingHeadError, OverLengthError, UsageError
from bertkit.inference import InferenceReport
from bertkit.tasks import (
    TASKS,
    LevelPrediction,
    MultiLabelClassification,
    OrdinalRegression,
    Regression,
    SequenceClassification,
    TextExample,
    stored_task,
    task_settings,
)
from bertkit.tasks.texts import mean_over_windows, ordered_names
from bertkit.tasks.thresholds import best_label_threshold
from bertkit.tokenizer.layout import Layout
from bertkit.training import outputs_of

NAMES = ("blue", "green", "red")
TEXTS = ["a cat sat", "the dog", "run walk talk one two three", "mat", "x y z un able", "blue blue", "four"]
SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 2,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip


def labeled(labels, pairs: bool = False) -> list[TextExample]:
    return [
        TextExample(text, TEXTS[-1 - index] if pairs else None, label, f"data.csv, line {index + 2}")
        for index, (text, label) in enumerate(zip(TEXTS, labels, strict=False))
    ]


def classes() -> list[TextExample]:
    return labeled(["red", "blue", "green", "red", "blue", "red", "green"])


def model_of(task, num_labels: int = 3, **layout) -> Model:
    model = our_model("sequence_classification", 3, num_labels, **SHAPE)
    model.checkpoint.label_names, model.checkpoint.problem_type = task.label_names, task.problem_type
    model.checkpoint.trained = TrainedTask(task, Layout(**{"max_length": 24, "on_long": "truncate"} | layout))
    return model


def loss_of(model: Model, task, examples, num_parts: int = 1) -> tuple[float, dict[str, float]]:
    """The loss and the metrics of one batch of all examples, in evaluation mode."""
    encodings = task.encode(model.tokenizer, examples, model.trained.layout)
    batch = task.labeled(examples, encodings).take(np.arange(len(encodings)))
    totals = task.totals(batch)
    losses = [task.loss(outputs_of(model.network, part), part, totals) for part in batch.split(num_parts)]
    sums = torch.stack([loss.sums for loss in losses]).sum(0)
    return sum(loss.value.item() for loss in losses), task.metrics(sums)


def logits_of(model: Model, examples) -> torch.Tensor:
    task = model.trained.task
    encodings = task.encode(model.tokenizer, examples, Layout(24))
    batch = task.labeled(examples, encodings).take(np.arange(len(encodings))).batch
    return model.network(batch).logits["sequence_classification"].detach()


# ---- losses


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", ["single", "multi", "regression"])
def test_losses_and_logits_of_transformers(tmp_path: Path, kind: str, pairs: bool) -> None:
    several = [("red",), (), ("blue", "red"), ("green",), ("blue", "green", "red"), (), ("red",)]
    task, examples, targets = {
        "single": (SequenceClassification(NAMES), classes(), torch.tensor([2, 0, 1, 2, 0, 2, 1])),
        "multi": (MultiLabelClassification(NAMES), labeled(several),
                  torch.tensor([[float(name in names) for name in NAMES] for names in several])),
        "regression": (Regression(), labeled([0.5, -2.0, 3.25, 1.0, 0.0, 5.0, 2.5]),
                       torch.tensor([0.5, -2.0, 3.25, 1.0, 0.0, 5.0, 2.5])),
    }[kind]  # fmt: skip
    if pairs:
        examples = [replace(one, pair=TEXTS[-1 - index]) for index, one in enumerate(examples)]
    model = model_of(task, 1 if kind == "regression" else 3)
    model.save(tmp_path / "model")
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert theirs.config.problem_type == task.problem_type
    batch = task.labeled(examples, task.encode(model.tokenizer, examples, Layout(24))).take(np.arange(7)).batch
    with torch.no_grad():
        output = theirs(
            input_ids=batch.pad(batch.input_ids), attention_mask=batch.attention_mask().long(),
            token_type_ids=batch.pad(batch.token_type_ids), labels=targets,
        )  # fmt: skip
    assert bool(batch.token_type_ids.any()) == pairs
    assert error(logits_of(model, examples), output.logits) < 1e-5
    for num_parts in (1, 3):
        loss, metrics = loss_of(model, task, examples, num_parts)
        assert loss == pytest.approx(output.loss.item(), rel=1e-5)
        assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
    scores = model.evaluate(examples)
    assert scores["loss"] == pytest.approx(output.loss.item(), rel=1e-5)


def test_weights_and_smoothing_of_torch() -> None:
    weights, examples = (0.5, 2.0, 1.25), classes()
    task = SequenceClassification(NAMES, class_weights=weights, label_smoothing=0.2)
    model, targets = model_of(task), torch.tensor([2, 0, 1, 2, 0, 2, 1])
    expected = F.cross_entropy(logits_of(model, examples), targets, torch.tensor(weights), label_smoothing=0.2)
    assert loss_of(model, task, examples, 3)[0] == pytest.approx(expected.item(), rel=1e-5)

    several = labeled([("red",), (), ("blue", "red"), ("green",), ("blue", "green", "red"), (), ("red",)])
    many = MultiLabelClassification(NAMES, class_weights=weights, label_smoothing=0.2)
    model, targets = model_of(many), torch.from_numpy(many.targets(several))
    results = F.binary_cross_entropy_with_logits(
        logits_of(model, several), 0.8 * targets + 0.1, pos_weight=torch.tensor(weights)
    )
    assert loss_of(model, many, several, 3)[0] == pytest.approx(results.item(), rel=1e-5)


def test_accuracy_is_counted() -> None:
    task, examples = SequenceClassification(NAMES), classes()
    model = model_of(task)
    predicted = [prediction.label for prediction in model.predict(examples)]
    right = np.mean([label == example.label for label, example in zip(predicted, examples, strict=True)])
    assert loss_of(model, task, examples, 3)[1]["accuracy"] == pytest.approx(right)
    assert model.evaluate(examples)["accuracy"] == pytest.approx(right)


# ---- predictions


@pytest.mark.every_processor
def test_predictions_are_the_softmax_of_the_logits_regardless_of_batch() -> None:
    model = model_of(SequenceClassification(NAMES))
    expected = logits_of(model, classes()).softmax(-1)
    for given in (TEXTS, [(text,) for text in TEXTS]):
        if isinstance(given[0], tuple):
            with pytest.raises(UsageError, match="a pair"):
                model.predict(given)
            continue
        results = model.predict(given)
        for one, row in zip(results, expected, strict=True):
            assert list(one.probabilities) == list(NAMES)
            assert torch.allclose(torch.tensor(list(one.probabilities.values())), row, atol=1e-6)
            assert one.label == NAMES[int(row.argmax())]
    alone = [model.predict([text])[0].probabilities["red"] for text in TEXTS]
    assert alone == [one.probabilities["red"] for one in results]
    assert model.predict([]) == []


@pytest.mark.every_processor
def test_multi_label_predictions_and_thresholds() -> None:
    examples = labeled([("red",), (), ("blue", "red"), ("green",), ("blue", "green", "red"), (), ("red",)])
    task = MultiLabelClassification(NAMES)
    model = model_of(task)
    expected = logits_of(model, examples).sigmoid().numpy()
    results = model.predict(examples)
    for one, row in zip(results, expected, strict=True):
        assert list(one.probabilities.values()) == pytest.approx(row.tolist(), abs=1e-5)  # two float32 paths
        assert one.labels == tuple(name for name, value in zip(NAMES, row, strict=True) if value >= 0.5)
    tuned = task.with_calibrated_thresholds(examples, results)
    model.checkpoint.trained = replace(model.trained, task=tuned)
    assert model.evaluate(examples)["macro_f1"] >= model_of(task).evaluate(examples)["macro_f1"]
    lowest = replace(tuned, thresholds=(0.0, 0.0, 0.0))
    model.checkpoint.trained = replace(model.trained, task=lowest)
    assert all(one.labels == NAMES for one in model.predict(examples))


def test_best_threshold_is_the_best_of_all() -> None:
    draw = np.random.default_rng(7)

    def f1(targets: np.ndarray, decided: np.ndarray) -> float:
        return 2 * (targets & decided).sum() / (targets.sum() + decided.sum())

    for _ in range(100):
        size = int(draw.integers(2, 12))
        targets, probabilities = draw.random(size) < 0.4, draw.integers(0, 8, size) / 8 + 0.05
        results = best_label_threshold(targets, probabilities)
        if targets.all() or not targets.any():
            assert results == 0.5
            continue
        candidates = [f1(targets, probabilities >= value) for value in probabilities]
        assert f1(targets, probabilities >= results) == pytest.approx(max(candidates))


def test_ordinal_levels_are_the_nearest() -> None:
    task = OrdinalRegression(levels=("bad", "fair", "good"), center=1.0, scale=0.5)
    encodings = task.encode(
        our_model("sequence_classification", 3, 1, **SHAPE).tokenizer, labeled([None] * 7), Layout()
    )
    logits = np.array([[-9.0], [-1.2], [-0.9], [0.1], [0.9], [1.2], [9.0]], np.float32)
    results = task.decode(labeled([None] * 7), encodings, logits)
    assert [one.label for one in results] == ["bad", "bad", "fair", "fair", "fair", "good", "good"]
    assert results[1] == LevelPrediction("bad", pytest.approx(0.4))
    assert task.targets(labeled(["good", "bad"])).tolist() == [2.0, 0.0]
    scorer = task.scorer()
    scorer.add(labeled(["bad", "fair", "fair", "fair", "bad", "good", "good"]), results)
    assert scorer.results()["accuracy"] == pytest.approx(5 / 7)
    assert scorer.results()["mean_absolute_error"] == pytest.approx(
        np.abs(np.array([-3.5, 0.4, 0.55, 1.05, 1.45, 1.6, 5.5]) - [0, 1, 1, 1, 0, 2, 2]).mean(), rel=1e-6
    )


def test_windows_of_a_text_are_averaged_by_the_tokens_they_own() -> None:
    task = SequenceClassification(NAMES)
    model = model_of(task, max_length=7, on_long="window", stride=2)
    text = "one two three four blue red green cat dog mat un able"
    encodings = task.encode(model.tokenizer, [TextExample("cat"), TextExample(text)], model.trained.layout)
    assert len(encodings) > 4
    logits = np.arange(len(encodings) * 3, dtype=np.float32).reshape(-1, 3) ** 2
    owned = (encodings.owned[:, 1] - encodings.owned[:, 0])[1:, None]
    expected = [logits[0], (logits[1:] * owned).sum(0) / owned.sum()]
    assert np.allclose(mean_over_windows(encodings, logits), expected)
    data = task.labeled([TextExample("cat", label="red"), TextExample(text, label="blue")], encodings)
    assert data.labels.tolist() == [2] + [0] * (len(encodings) - 1)
    assert sum(model.predict([text])[0].probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_truncation_is_counted_or_an_error() -> None:
    long = "one two three four blue red green cat dog mat un able"
    report = InferenceReport()
    model_of(SequenceClassification(NAMES), max_length=7).predict(["cat", long], report=report)
    assert (report.num_texts, report.num_texts_cut, report.num_tokens_cut) == (2, 1, 7)
    model = model_of(SequenceClassification(NAMES), max_length=7)
    examples = [TextExample(text, label=NAMES[0]) for text in ("cat", long)]
    for read in (model.predict, model.evaluate):
        with pytest.warns(UserWarning, match="1 of 2 texts") as caught:
            read(examples)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.raises(OverLengthError, match=r"^example 1: has 14 tokens, 7 more than max_length 7"):
        model_of(SequenceClassification(NAMES), max_length=7, on_long="error").predict(["cat", long])


# ---- labels


def test_label_names_are_in_order() -> None:
    assert SequenceClassification.of_examples(classes(), {}).label_names == NAMES
    numbers = labeled(["10", "9", "10", "9", "-1", "-1"])
    assert SequenceClassification.of_examples(numbers, {}).label_names == ("-1", "9", "10")
    assert ordered_names({"1.0", "1", "b"}) == ("1", "1.0", "b")
    for names in permutations(("10", "9", "2", "nan")):
        assert ordered_names(names) == ("10", "2", "9", "nan")
    balanced = SequenceClassification.of_examples(classes(), {"class_weights": "balanced"})
    assert balanced.class_weights == pytest.approx((7 / 6, 7 / 6, 7 / 9))
    given = SequenceClassification.of_examples(classes(), {"class_weights": {"red": 2, "green": 1, "blue": 3}})
    assert given.class_weights == (3.0, 1.0, 2.0)
    several = labeled([("red", "blue"), ("red",), (), ("blue", "red"), ()])
    many = MultiLabelClassification.of_examples(several, {"class_weights": "balanced"})
    assert many.label_names == ("blue", "red") and many.class_weights == pytest.approx((3 / 2, 2 / 3))


@pytest.mark.parametrize(
    ("task", "labels", "options", "message"),
    [
        (
            "sequence-classification",
            ["red", "Red", "red"],
            {},
            r"no other example has .*'Red'; did you mean 'red': add",
        ),
        ("sequence-classification", ["red", "blue", "red"], {}, r"data.csv, line 3: no other example has .*'blue'"),
        ("sequence-classification", ["red", "red"], {}, "at least two labels"),
        ("sequence-classification", ["red", None], {}, "data.csv, line 3: its label is None"),
        ("sequence-classification", ["red", ""], {}, "line 3: its label is ''"),
        ("sequence-classification", [], {}, "no examples"),
        ("sequence-classification", ["a", "a", "b", "b"], {"class_weights": {"a": 1}}, r"\['a', 'b'\]"),
        ("sequence-classification", ["a", "a", "b", "b"], {"class_weights": {"a": 1, "b": -1}}, "above 0"),
        ("sequence-classification", ["a", "a", "b", "b"], {"class_weights": {"a": 1, "b": "high"}}, "'high'.*a number"),
        ("sequence-classification", ["a", "a", "b", "b"], {"class_weights": {"a": 1, "b": None}}, "None.*a number"),
        ("sequence-classification", ["a", "a", "b", "b"], {"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ("sequence-classification", ["a", "a", "b", "b"], {"levels": ["a"]}, "has no levels"),
        ("multi-label-classification", [(), ()], {}, "no example has a label"),
        ("multi-label-classification", [("a",), ("a", "b")], {}, "line 3: no other example has the label 'b'"),
        ("regression", [], {}, "no examples"),
        ("regression", [1.0, float("nan")], {}, "line 3: its score is nan: expected a finite"),
        ("regression", ["1.5", "high"], {}, "line 3: its score is 'high'"),
        ("regression", [1.0, None], {}, "line 3: its score is None"),
        ("regression", [2.0, 2], {}, "expected different scores"),
        ("regression", [1.0, 1e300], {}, r"line 3: its score is 1e\+300: expected 3.4e\+38 or less"),
        ("regression", [170000001.0, 170000005.0], {}, "mean 170000003 .* deviation 2, which float32 cannot"),
        ("regression", [0.0, 1e-300], {}, "mean 5e-301 .* use a smaller unit"),
        ("regression", [2.0, 3.0], {"class_weights": "balanced"}, "no options"),
        ("ordinal-regression", ["low", "high"], {}, "line 3: the level 'high' is not a number|line 2: the level 'low'"),
        ("ordinal-regression", ["low", "high"], {"levels": ["low", "mid"]}, "line 3: the label 'high' is not one"),
        ("ordinal-regression", ["2", "2"], {}, "expected different levels"),
    ],
)
def test_labels_that_cannot_be_learned_raise(task: str, labels, options, message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        TASKS[task].of_examples(labeled(labels), options)


def test_labels_are_matched_by_name_and_strangers_are_errors() -> None:
    model = model_of(SequenceClassification(NAMES))
    with pytest.raises(DataError, match=r"line 3: the label 'purple' is not one of the model's \(blue, green, red\)"):
        model.evaluate(labeled(["red", "purple"]))
    with pytest.raises(DataError, match="line 2: its label is None"):
        model.evaluate(labeled([None]))
    with pytest.raises(DataError, match="line 3: has no second text"):
        model.predict([TextExample("a", "b"), TextExample("c", location="data.csv, line 3")])


def test_other_bad_settings_raise() -> None:
    with pytest.raises(UsageError, match="2 class_weights for 3 labels"):
        SequenceClassification(NAMES, class_weights=(1.0, 2.0))
    with pytest.raises(UsageError, match="1 thresholds for 3 labels"):
        MultiLabelClassification(NAMES, thresholds=(0.5,))


# ---- on disk


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "task",
    [
        SequenceClassification(NAMES, class_weights=(1.0, 2.0, 0.5), label_smoothing=0.1),
        MultiLabelClassification(NAMES, thresholds=(0.25, 0.5, 0.75)),
        OrdinalRegression(levels=("low", "high"), center=0.5, scale=2.0),
        Regression(),
    ],
    ids=lambda task: task.name,
)
def test_saved_directory_keeps_the_task(tmp_path: Path, task) -> None:
    model = model_of(task, len(task.label_names), max_length=9, on_long="window", stride=3)
    model.checkpoint.trained = replace(model.trained, metrics={"accuracy": 0.75})
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.trained == model.trained
    results, expected = ([list(asdict(one).values()) for one in each.predict(TEXTS)] for each in (again, model))
    for one, other in zip(results, expected, strict=True):
        assert all(
            a == (pytest.approx(b) if isinstance(b, float | dict) else b) for a, b in zip(one, other, strict=True)
        )
    assert stored_task(task.name, task.label_names, task_settings(task), where="") == task


def test_task_of_published_classifier(tmp_path: Path) -> None:
    for task in (SequenceClassification(NAMES), MultiLabelClassification(NAMES)):
        model_of(task).save(tmp_path / task.name)
        (tmp_path / task.name / "bertkit.json").unlink()
        assert load(tmp_path / task.name).trained == TrainedTask(task, Layout(24, "truncate"))
    model_of(Regression(), 1).save(tmp_path / "plain")
    (tmp_path / "plain" / "bertkit.json").unlink()
    edit_json(tmp_path / "plain" / "config.json", problem_type=None)
    assert load(tmp_path / "plain").trained.task == Regression()
    with pytest.warns(UserWarning, match="states no problem_type"):
        assert math.isfinite(load(tmp_path / "plain").predict(["cat"])[0].score)


def test_stored_metric_that_is_null_is_no_number(tmp_path: Path) -> None:
    model_of(SequenceClassification(NAMES)).save(tmp_path / "model")
    path = tmp_path / "model" / "bertkit.json"
    task = json.loads(path.read_text())["task"]
    edit_json(path, task=task | {"metrics": {"accuracy": 0.5, "matthews": None}})
    metrics = load(tmp_path / "model").trained.metrics
    assert metrics["accuracy"] == 0.5 and math.isnan(metrics["matthews"])


def test_damaged_records_raise(tmp_path: Path) -> None:
    model_of(SequenceClassification(NAMES)).save(tmp_path / "model")
    path = tmp_path / "model" / "bertkit.json"
    task = json.loads(path.read_text())["task"]
    for change, message in (
        ({"name": "poetry"}, "poetry"),
        ({"settings": {"verses": 3}}, "task.settings has 'verses'"),
        ({"settings": {"label_smoothing": 3.0}}, "label_smoothing"),
        ({"max_length": "long"}, "max_length"),
        ({"on_long": "sing"}, "on_long"),
        ({"metrics": {"accuracy": "high"}}, "accuracy"),
        ({"settings": []}, "settings"),
    ):
        edit_json(path, task=task | change)
        with pytest.raises(CheckpointError, match=message):
            load(tmp_path / "model")


def test_untrained_head_raises(tmp_path: Path) -> None:
    our_model("encoder", 3, **SHAPE).save(tmp_path / "encoder")
    model = load(tmp_path / "encoder", new=["sequence_classification"], label_names=NAMES)
    with pytest.raises(MissingHeadError, match="was not trained for a task"):
        model.predict(TEXTS)
    model.checkpoint.trained = TrainedTask(SequenceClassification(NAMES), Layout(24))
    with pytest.raises(MissingHeadError, match="never trained"):
        model.predict(TEXTS)
    model.save(tmp_path / "untrained")
    with pytest.raises(MissingHeadError, match="never trained"):
        load(tmp_path / "untrained").evaluate(classes())
    model.mark_trained()
    assert len(model.predict(TEXTS)) == len(TEXTS)


def test_a_str_a_table_and_no_examples_raise() -> None:
    model = model_of(SequenceClassification(label_names=NAMES))
    with pytest.raises(UsageError, match="expected a list of texts, got a str: put it in a list"):
        model.predict("a joy")
    with pytest.raises(UsageError, match="got a str"):
        list(model.predict_stream("a joy", report=InferenceReport()))
    with pytest.raises(UsageError, match="expected texts, got a DataFrame: pass one of its columns"):
        model.predict(pd.DataFrame({"text": TEXTS}))
    with pytest.raises(DataError, match="no examples to evaluate the model on"):
        model.evaluate([])
