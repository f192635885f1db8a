"""Multiple choice: transformers' loss, groups that stay together, predictions of any number of choices."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from random_models import our_model, published_model, save_published

from bertkit import Model, load
from bertkit.batch import LabeledBatch
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import DataError, OverLengthError, TruncationWarning, UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.inference import InferenceReport
from bertkit.tasks import ChoiceQuestion, MultipleChoice, SequenceClassification, stored_task, task_settings
from bertkit.tokenizer.layout import Layout
from bertkit.training import outputs_of

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 2,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
WORDS = "the cat dog sat unable walking blue one two".split()
TASK = MultipleChoice()

pytestmark = pytest.mark.usefixtures("one_thread")


def questions(number: int, num_choices: int = 3, seed: int = 1) -> list[ChoiceQuestion]:
    draw = np.random.default_rng(seed)

    def text(longest: int) -> str:
        return " ".join(str(word) for word in draw.choice(WORDS, int(draw.integers(1, longest))))

    def question(line: int) -> ChoiceQuestion:
        choices = tuple(text(9) for _ in range(num_choices))
        return ChoiceQuestion(text(6), choices, int(draw.integers(num_choices)), str(line), f"line {line}")

    return [question(line) for line in range(number)]


def model_of(**layout) -> Model:
    model = our_model("multiple_choice", 3, **SHAPE)
    model.checkpoint.trained = TrainedTask(TASK, Layout(**{"max_length": 24, "on_long": "truncate"} | layout))
    return model


def test_loss_equals_transformers(tmp_path):
    reference = published_model("multiple_choice", 7, **SHAPE)
    model = load(save_published(reference, tmp_path), device="cpu")
    examples = questions(11)
    encodings = TASK.encode(model.tokenizer, examples, Layout(24, "truncate"))
    batch = TASK.labeled(examples, encodings).take(np.arange(11))
    length = batch.batch.max_seqlen
    padded = {
        name: batch.batch.pad(values).view(11, 3, length)
        for name, values in (
            ("input_ids", batch.batch.input_ids),
            ("token_type_ids", batch.batch.token_type_ids),
            ("attention_mask", torch.ones_like(batch.batch.input_ids)),
        )
    }
    expected = reference(**padded, labels=batch.labels)
    totals = TASK.totals(batch)
    for num_parts in (1, 4):
        losses = [TASK.loss(outputs_of(model.network, part), part, totals) for part in batch.split(num_parts)]
        assert len(losses) == num_parts
        assert sum(loss.value.detach() for loss in losses).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    metrics = TASK.metrics(torch.stack([loss.sums for loss in losses]).sum(0))
    assert metrics["loss"] == pytest.approx(expected.loss.item(), rel=1e-6)
    right = (expected.logits.argmax(-1) == batch.labels).double().mean().item()
    assert metrics["accuracy"] == pytest.approx(right)
    predictions = model.predict(examples)
    probabilities = expected.logits.softmax(-1)
    results = torch.tensor([prediction.probabilities for prediction in predictions])
    assert torch.allclose(results, probabilities.detach(), atol=1e-5)
    assert model.evaluate(examples) == pytest.approx({"loss": expected.loss.item(), "accuracy": right}, abs=1e-5)


def test_logits_of_one_label_are_no_choices():
    logits = torch.tensor([[0.5], [2.0], [-1.0], [0.0], [3.0], [1.0]])
    part = LabeledBatch(Any, torch.tensor([1, 0]))
    expected = torch.nn.functional.cross_entropy(logits.view(2, 3), part.labels, reduction="mean")
    loss_function = MultipleChoice().loss_function
    assert loss_function.loss(logits, part, loss_function.totals(part)).value.item() == pytest.approx(expected.item())
    one_label = SequenceClassification(("a",)).loss_function
    with pytest.raises(ValueError, match=r"batch_size \(6\) to match target batch_size \(2\)"):
        one_label.loss(logits, part, one_label.totals(part))


def test_predictions_of_any_number_of_choices():
    model, examples = model_of(), [*questions(5, 2), *questions(7, 5), *questions(3, 3)]
    predictions = model.predict(examples)
    for example, prediction in zip(examples, predictions, strict=True):
        assert prediction.probabilities == pytest.approx(model.predict([example])[0].probabilities, abs=1e-5)
    for example, prediction in zip(examples, predictions, strict=True):
        assert len(prediction.probabilities) == len(example.choices) and sum(prediction.probabilities) == pytest.approx(
            1
        )
        assert prediction.choice == int(np.argmax(prediction.probabilities))
        assert prediction.text == example.choices[prediction.choice]
    results = model.evaluate(examples)
    assert results["accuracy"] == np.mean([e.label == p.choice for e, p in zip(examples, predictions, strict=True)])
    json.dumps(asdict(predictions[0]))


def test_order_of_choices_does_not_matter():
    model, examples = model_of(), questions(9)
    turned = [ChoiceQuestion(one.context, one.choices[::-1]) for one in examples]
    for one, two in zip(model.predict(examples), model.predict(turned), strict=True):
        assert one.probabilities == pytest.approx(two.probabilities[::-1], abs=1e-6) and one.text == two.text


def test_rejects_invalid_labels_and_texts():
    examples = questions(3)
    with pytest.raises(DataError, match="line 0: has 2 choices, the first question has 3: give it as many"):
        both = [*examples, *questions(1, 2)]
        TASK.labeled(both, TASK.encode(model_of().tokenizer, both, Layout()))
    for label in (None, 3, -1):
        wrong = [ChoiceQuestion("a", ("b", "c", "d"), label, location="x.csv, line 2")]
        with pytest.raises(
            DataError, match=rf"x.csv, line 2: the right choice is {label}: expected a number from 0 to 2"
        ):
            TASK.labeled(wrong, TASK.encode(model_of().tokenizer, wrong, Layout()))
        with pytest.raises(DataError, match="the right choice is"):
            model_of().evaluate(wrong)
    with pytest.raises(UsageError, match="a choice cannot be split into windows"):
        model_of(on_long="window").predict(examples)
    long = ChoiceQuestion("a", ("b", "c " * 30), location="x.csv, line 9")
    with pytest.raises(OverLengthError, match=r"^x.csv, line 9: has 34 tokens, 10 more than max_length 24"):
        model_of(on_long="error").predict([long])
    nameless = [*questions(2), ChoiceQuestion("a", ("b", "c " * 30))]
    with pytest.raises(OverLengthError, match=r"^example 9: has 34 tokens"):
        TASK.encode(model_of().tokenizer, nameless, Layout(24), first_index=7)
    with pytest.raises(DataError, match="no examples"):
        MultipleChoice.of_examples([], {})
    for item, message in (
        ("a", "a question and its choices"),
        (("a", "b"), "a list of strs"),
        (("a", []), "a list of strs"),
    ):
        with pytest.raises(UsageError, match=message):
            MultipleChoice.example(item)


def test_task_of_examples(tmp_path):
    examples = questions(3)
    assert MultipleChoice.of_examples(examples, {}) == TASK == stored_task(TASK.name, None, task_settings(TASK), "here")
    assert MultipleChoice.example(("a", ["b", "c"]), 1) == ChoiceQuestion("a", ("b", "c"), 1)
    assert TASK.best_by in TASK.scorer().results()
    reference = published_model("multiple_choice", 7, **SHAPE)
    model = load(save_published(reference, tmp_path / "published"), device="cpu")
    assert model.trained.task == TASK
    model.save(tmp_path / "ours")
    again = load(tmp_path / "ours", device="cpu")
    assert again.trained.task == TASK and again.predict(examples) == model.predict(examples)


def test_long_choices_are_cut_with_counts():
    report = InferenceReport()
    longest = ChoiceQuestion("cat", ("dog " * 30,) * 4)  # 34 tokens of 24, four times
    model_of().predict([ChoiceQuestion("cat " * 20, ("dog " * 20, "sat")), longest, *questions(3)], report=report)
    assert report.num_texts == 5 and report.num_texts_cut == 2 and report.num_tokens_cut == 19 + 40
    with pytest.warns(TruncationWarning, match="1 of 4 texts exceeded the model's maximum length and lost 40 tokens"):
        model_of().predict([longest, *questions(3)])


def test_card_counts_questions(tmp_path):
    our_model("encoder", 3, **SHAPE).save(tmp_path / "model")
    train = [ChoiceQuestion("cat", ("dog " * 30,) * 4, 1), *questions(3, 4)]
    run = Finetuning(
        tmp_path / "out",
        tmp_path / "model",
        "multiple-choice",
        FinetuningSettings.of(num_epochs=1),
        log_line=lambda line: None,
    )
    with pytest.warns(TruncationWarning, match="1 of 4 texts exceeded the model's maximum length and lost 40 tokens"):
        run.start(train, train)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| texts cut | 1 | 1 |" in card and "| tokens cut | 40 | 40 |" in card
