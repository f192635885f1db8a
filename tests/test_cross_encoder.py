"""Training of cross-encoders: losses equal to sentence-transformers', folders that it opens, bad rows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from examples_of_tasks import WORDS, call
from random_models import edit_json, published_model, save_published
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses as theirs
from torch import Tensor

import bertkit
from bertkit import Model, TextSet
from bertkit.errors import CheckpointError, DataError, UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.finetuning.network import model_to_train
from bertkit.tasks import CrossEncoding, Loss
from bertkit.tasks.cross_encoder.scorer import ScoredTexts, TextScores
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.losses.lists import LambdaLoss
from bertkit.tasks.reading.text_sets import read_text_sets
from bertkit.training import compute_gradients_of_vectors, outputs_of

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(kind: str, number: int = 6, seed: int = 0) -> list[TextSet]:
    """Texts that share words with their query are better."""
    draw, results = np.random.default_rng(seed), []
    for index in range(number):
        query = " ".join(draw.choice(WORDS[9:], 2, replace=False))
        texts = [" ".join(draw.choice(WORDS[:9], int(draw.integers(2, 6)))) for _ in range(4)]
        good = f"{texts[0]} {query}"
        if kind in ("scores", "binary"):
            is_good = index % 2
            value = float(is_good) if kind == "binary" else round(0.8 * is_good + 0.1 * float(draw.random()), 2)
            results.append(TextSet(query, (good if is_good else texts[1],), (), value))
        else:
            negatives = tuple(texts[1 : 2 + index % 3])
            scores = tuple(draw.normal(size=1 + len(negatives)).round(2).tolist()) if kind == "margins" else ()
            results.append(TextSet(query, (good,), negatives, scores=scores))
    return results


def new_model(encoder: Path, objective: str) -> Model:
    task = CrossEncoding(objective=objective)
    model = model_to_train(str(encoder), task, FinetuningSettings(), print)
    model.mark_trained()
    return model


def their_loss(name: str, model: CrossEncoder, data: Sequence[TextSet]) -> Tensor:
    queries, texts = [row.query for row in data], [list(row.texts[1:]) for row in data]
    if name == "lambda":
        labels = [torch.tensor([1.0] * len(row.positives) + [0.0] * len(row.negatives)) for row in data]
        return theirs.LambdaLoss(model)([queries, texts], labels)
    if name == "margin":  # of rows with one negative
        columns = [queries, [of_row[0] for of_row in texts], [of_row[1] for of_row in texts]]
        return theirs.MarginMSELoss(model)(columns, torch.tensor([row.scores[0] - row.scores[1] for row in data]))
    loss: Any = theirs.BinaryCrossEntropyLoss if name == "cross-entropy" else theirs.MSELoss
    return loss(model)([queries, [of_row[0] for of_row in texts]], torch.tensor([row.score for row in data]))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "kind"),
    [("cross-entropy", "scores"), ("squared-error", "scores"), ("lambda", "lists"), ("margin", "margins")],
)
def test_twenty_losses_equal_those_of_sentence_transformers(
    encoder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    model, data = new_model(encoder, name), rows(kind)
    if name == "margin":
        data = [TextSet(row.query, row.positives, row.negatives[:1], scores=row.scores[:2]) for row in data]
    model.save(tmp_path / "model")
    reference = CrossEncoder(str(tmp_path / "model"), device="cpu").train()
    for module in reference.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    task, layout = model.trained.task, model.trained.layout
    model.network.train()
    batch = task.labeled(data, task.encode(model.tokenizer, data, layout)).take(
        np.arange(sum(len(row.texts) - 1 for row in data))
    )
    parameters = list(model.network.parameters())

    def loss(scores: Tensor) -> tuple[Loss, Tensor]:
        scores.requires_grad_()
        result = task.loss(scores, batch, task.totals(batch))
        (slopes,) = torch.autograd.grad(result.value, scores)
        return Loss(result.value.detach(), result.sums), slopes

    optimizers = [torch.optim.AdamW(network.parameters(), lr=3e-3) for network in (model.network, reference)]
    ours, expected = [], []
    for _ in range(20):
        result = compute_gradients_of_vectors(
            parameters, batch.split(3), lambda part: task.vectors(outputs_of(model.network, part)), loss
        )
        ours.append(float(result.value))
        optimizers[0].step()
        optimizers[1].zero_grad()
        value = their_loss(name, reference, data)
        value.backward()
        optimizers[1].step()
        expected.append(value.item())
    assert expected[-1] < 0.9 * expected[0]
    np.testing.assert_allclose(ours[:1], expected[:1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=5e-4)  # rounding grows with the steps


def write(path: Path, data: Sequence[TextSet]) -> str:
    lines = []
    for row in data:
        content: dict[str, Any] = {"query": row.query, "positives": row.positives, "negatives": row.negatives}
        lines.append(content | ({} if row.score is None else {"score": row.score})
                     | ({"scores": row.scores} if row.scores else {}))  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_divergence_of_the_scores_of_a_teacher() -> None:
    """Of softmax over the texts of each row, in loops."""
    data, draw = rows("margins"), torch.Generator().manual_seed(2)
    task = CrossEncoding.of_examples(data, {"objective": "divergence", "temperature": 2.0})
    sizes = [len(row.scores) for row in data]
    scores = torch.randn(sum(sizes), generator=draw, dtype=torch.float64)
    targets = torch.tensor([score for row in data for score in row.scores], dtype=torch.float64)
    numbers = torch.tensor([number for number, size in enumerate(sizes) for _ in range(size)])
    expected = []
    for part, row in zip(scores.split(sizes), data, strict=True):
        by_teacher = torch.tensor(row.scores, dtype=torch.float64).div(2).softmax(0)
        expected.append(float((by_teacher * (by_teacher.log() - part.div(2).softmax(0).log())).sum()))
    assert float(task.losses[0].of_scores(scores, targets, numbers)) == pytest.approx(4 * np.mean(expected), abs=1e-9)


def test_grades_of_any_size_have_a_finite_loss() -> None:
    scores, rows = torch.tensor([1.0, 3.0, 2.0]), torch.zeros(3)
    losses = [
        float(LambdaLoss().of_scores(scores, torch.tensor([grade, grade - 1, 0]), rows)) for grade in (100.0, 150.0)
    ]
    assert losses[1] == pytest.approx(losses[0])  # 2 to the power of 150 is beyond float32


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("kind", ["scores", "lists", "binary"])
def test_saved_cross_encoder_equals_sentence_transformers(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, kind: str
) -> None:
    train, dev = write(tmp_path / "train.jsonl", rows(kind, 60, 1)), write(tmp_path / "dev.jsonl", rows(kind, 20, 2))
    out = str(tmp_path / "out")
    code, (result,), printed = call(
        capsys, "finetune", "cross-encoder", "--model", str(encoder), "--train", train, "--dev", dev, "--out", out,
        "--learning-rate", "0.01", "--num-epochs", "6", "--batch-size", "12",
    )  # fmt: skip
    assert code == 0, printed
    model, reference = bertkit.load(out), CrossEncoder(out, device="cpu")
    query, texts = "one two", ["the cat one two", "a dog", "walk"]
    expected = reference.predict([(query, text) for text in texts])
    np.testing.assert_allclose(model.score_pairs(query, texts), expected, atol=1e-5)
    assert [one.index for one in model.rank(query, texts)] == [one["corpus_id"] for one in reference.rank(query, texts)]
    code, (again,), _ = call(capsys, "evaluate", "--model", out, "--data", dev)
    metric = {"scores": "spearman", "lists": "ndcg_at_10", "binary": "average_precision"}[kind]
    assert code == 0 and again[metric] == pytest.approx(result[metric]) and result[metric] > 0.6
    code, predictions, _ = call(capsys, "predict", "--model", out, "--input", dev)
    assert code == 0 and len(predictions) == 20 and len(predictions[0]["scores"]) == len(rows(kind, 1, 2)[0].texts) - 1


def test_ndcg_of_large_grades() -> None:
    results = []
    for top in (3.0, 2_000.0):
        scorer = ScoredTexts("lists", lambda row, top=top: [top, top - 1, 0.0])
        scorer.add([TextSet("a", ("b", "c", "d"))], [TextScores((0.1, 0.2, 0.3))])
        results.append(scorer.results()["ndcg_at_10"])
    gains, discounts = np.array([[0.0, 3.0, 7.0], [7.0, 3.0, 0.0]]), 1 / np.log2([2, 3, 4])
    assert results[0] == pytest.approx(np.divide(*(gains @ discounts)))
    gains = np.array([[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]])
    assert results[1] == pytest.approx(np.divide(*(gains @ discounts)))


@pytest.mark.parametrize("settings", [{"max_seq_length": 6}, {"processing_kwargs": {"text": {"max_length": 6}}}])
def test_length_of_a_published_cross_encoder(tmp_path: Path, settings: dict[str, Any]) -> None:
    save_published(published_model("sequence_classification", 1, num_labels=1), tmp_path / "bert")
    CrossEncoder(str(tmp_path / "bert"), device="cpu").save_pretrained(str(tmp_path / "model"))
    edit_json(tmp_path / "model" / "sentence_bert_config.json", **settings)
    query, text = "the cat sat on", "the mat and the dog ran able"
    expected = CrossEncoder(str(tmp_path / "model"), device="cpu").predict([(query, text)])
    np.testing.assert_allclose(bertkit.load(tmp_path / "model").score_pairs(query, [text]), expected, atol=1e-6)
    bertkit.load(tmp_path / "model").save(tmp_path / "saved")
    again = CrossEncoder(str(tmp_path / "saved"), device="cpu").predict([(query, text)])
    np.testing.assert_allclose(again, expected, atol=1e-6)


def test_default_prompt_is_not_ignored(encoder: Path, tmp_path: Path) -> None:
    model = bertkit.load(encoder, new=["sequence_classification", "pooler"], label_names=["score"])
    model.mark_trained()
    model.save(tmp_path / "model")
    prompts = {"prompts": {"q": "the cat "}, "default_prompt_name": "q"}
    CrossEncoder(str(tmp_path / "model"), device="cpu", **prompts).save_pretrained(str(tmp_path / "with"))
    with pytest.raises(CheckpointError, match=r"puts the prompt 'the cat ' \(q\) before texts"):
        bertkit.load(tmp_path / "with")
    edit_json(tmp_path / "with" / "config_sentence_transformers.json", default_prompt_name=None)
    assert bertkit.load(tmp_path / "with").score_pairs("a", ["b"]).shape == (1,)


def test_training_continues_with_a_published_head(encoder: Path, tmp_path: Path) -> None:
    model = new_model(encoder, "lambda")
    model.save(tmp_path / "first")
    again = model_to_train(str(tmp_path / "first"), CrossEncoding(), FinetuningSettings(), print)
    weights = [each.network.heads["sequence_classification"].classifier.weight for each in (model, again)]
    assert torch.equal(*weights) and again.checkpoint.score_activation == "Sigmoid"


def test_random_initial_head_is_never_the_best_one(encoder: Path, tmp_path: Path) -> None:
    """Here training changes nothing, so that no step is better."""
    settings = FinetuningSettings().changed(num_epochs=1, learning_rate=1e-30, head_learning_rate=1e-30)
    outcome = Finetuning(tmp_path / "a", encoder, "cross-encoder", settings).start(rows("lists"), rows("lists", 6, 1))
    assert outcome.best_step == 1
    settings = settings.changed(num_epochs=2)  # where the head is trained, initial weights can be kept
    outcome = Finetuning(tmp_path / "b", tmp_path / "a", "cross-encoder", settings).start(rows("lists"), rows("lists"))
    assert outcome.best_step == 0


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "no examples"),
        ([TextSet("a")], {}, "no text to score"),
        ([TextSet("a", ("b",)), TextSet("c", ("d",))], {}, "compares several texts of a query, and every row has one"),
        ([TextSet("a", ("b",)), TextSet("c", ("d",))], {"objective": "cross-entropy"}, "every text has the score 1"),
        ([TextSet("a", ("b",), (), 3.0), TextSet("c", ("d",), (), 1.0)], {"objective": "cross-entropy"}, "0 to 1"),
        ([TextSet("a", ("b",), (), float("nan")), TextSet("c", ("d",), (), 1.0)], {}, "expected finite numbers"),
        ([TextSet("a", ("b",), ("c",), scores=(1.0,))], {}, "has 1 scores for 2 texts"),
        ([TextSet("a", ("b",), ("b",))], {}, "'b' is a negative here and a positive of the same text in it"),
        (rows("lists"), {"teacher": Path("big")}, r"teacher=.*Path\('big'\): expected a str, such as 'big'"),
        (rows("lists"), {"objective": "best"}, "objective='best': expected one of cross-entropy"),
    ],
)
def test_bad_rows(data: list[TextSet], options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        CrossEncoding.of_examples(data, options)


def test_scores_of_texts_in_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"query": "A", "positives": ["B"], "negatives": ["C"], "scores": [3, -1.5]}')
    (row,) = read_text_sets(ExampleFile(tmp_path / "a.jsonl"))
    assert row.scores == (3.0, -1.5)
    (tmp_path / "b.jsonl").write_text('{"query": "A", "positives": ["B"], "scores": ["high"]}')
    with pytest.raises(DataError, match=r"has the score 'high' in 'scores': expected a number; .* remove the row$"):
        list(read_text_sets(ExampleFile(tmp_path / "b.jsonl")))


def test_rank_takes_a_column_a_generator_or_one_text(encoder: Path) -> None:
    model, texts = new_model(encoder, "cross-entropy"), ["the cat one two", "a dog", "walk"]
    expected = model.rank("one two", texts)
    assert model.rank("one two", pd.Series(texts, index=[2, 0, 1])) == expected
    assert model.rank("one two", (text for text in texts)) == expected
    assert [one.text for one in model.rank("a", "zebra")] == ["zebra"]
    with pytest.raises(UsageError, match="expected texts, got a DataFrame: pass one of its columns"):
        model.score_pairs("one", pd.DataFrame({"text": texts}))  # pyrefly: ignore
