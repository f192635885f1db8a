"""Siamese classification: losses equal to sentence-transformers' SoftmaxLoss, folders, neighboring paragraphs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from examples_of_tasks import WORDS, call
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as theirs

import bertkit
from bertkit import Model
from bertkit.errors import DataError
from bertkit.evidence.outcomes import outcomes_of
from bertkit.finetuning import FinetuningSettings
from bertkit.finetuning.network import model_to_train
from bertkit.tasks import SiameseClassification, TextExample
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.reading.text_sets import read_text_sets
from bertkit.training import compute_gradients, outputs_of

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = ("contradiction", "entailment", "neutral")


def pairs(number: int, seed: int = 0) -> list[TextExample]:
    draw, results = np.random.default_rng(seed), []
    for _ in range(number):
        label = int(draw.integers(3))
        texts = [" ".join(draw.permutation([*draw.choice(WORDS, int(draw.integers(2, 7)))])) for _ in range(2)]
        results.append(TextExample(texts[0], f"{texts[1]} {('blue', 'red', 'green')[label]}", label=LABELS[label]))
    return results


def new_model(encoder: Path) -> Model:
    task = SiameseClassification(LABELS)
    return model_to_train(str(encoder), task, FinetuningSettings.of(head="drawn"), print, pairs(1)[0])


def test_texts_of_a_pair_are_no_windows(encoder: Path) -> None:
    model = new_model(encoder)
    model.checkpoint.mark_trained()
    outcomes = outcomes_of(model, pairs(3))
    assert outcomes.num_windows.tolist() == [1, 1, 1]


@pytest.mark.full
def test_twenty_losses_equal_those_of_the_softmax_loss(encoder: Path, tmp_path: Path) -> None:
    model, data = new_model(encoder), pairs(7)
    model.save(tmp_path / "model")
    reference = SentenceTransformer(str(tmp_path / "model"), device="cpu").train()
    for module in reference.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    loss = theirs.SoftmaxLoss(reference, 20, num_labels=3)
    head = model.network.heads["vector_classification"]
    loss.classifier.load_state_dict(head.classifier.state_dict())
    features = [reference.tokenize([one.text for one in data]), reference.tokenize([one.pair or "" for one in data])]
    labels = torch.tensor([LABELS.index(str(one.label)) for one in data])
    task, layout = model.trained.task, model.trained.layout
    model.network.train()
    batch = task.labeled(data, task.encode(model.tokenizer, data, layout)).take(np.arange(len(data)))
    totals, parameters = task.totals(batch), list(model.network.parameters())
    optimizers = [torch.optim.AdamW(network.parameters(), lr=3e-3) for network in (model.network, loss)]
    ours, expected = [], []
    for _ in range(20):
        parts = compute_gradients(
            parameters, batch.split(3), lambda part: task.loss(outputs_of(model.network, part), part, totals)
        )
        ours.append(sum(float(part.value) for part in parts))
        optimizers[0].step()
        optimizers[1].zero_grad()
        value = loss([dict(part) for part in features], labels)
        value.backward()
        optimizers[1].step()
        expected.append(value.item())
    assert expected[-1] < 0.9 * expected[0]
    np.testing.assert_allclose(ours[:1], expected[:1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-4)  # rounding grows with the steps


@pytest.mark.full
def test_finetune_evaluate_and_embed(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name, seed in (("train", 1), ("dev", 2)):
        rows = [f"{one.text},{one.pair},{one.label}" for one in pairs(60, seed)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["premise,hypothesis,label", *rows]) + "\n")
    train, dev, out = str(tmp_path / "train.csv"), str(tmp_path / "dev.csv"), str(tmp_path / "out")
    code, (result,), printed = call(
        capsys, "finetune", "siamese-classification", "--model", str(encoder), "--train", train, "--dev", dev,
        "--out", out, "--learning-rate", "0.01", "--num-epochs", "4",
    )  # fmt: skip
    assert code == 0 and result["accuracy"] > 0.5, printed
    model = bertkit.load(out)
    assert model.evaluate(pairs(60, 2))["accuracy"] == pytest.approx(result["accuracy"])
    texts = ["red cat", "a blue dog"]
    vectors = SentenceTransformer(out, device="cpu").encode(texts)
    np.testing.assert_allclose(model.embed(texts), vectors, atol=1e-5)


def test_class_labels_are_not_scores(tmp_path: Path) -> None:
    (tmp_path / "nli.csv").write_text("premise,hypothesis,label\nA,B,neutral\n")
    with pytest.raises(DataError, match="for pairs with classes use siamese-classification"):
        list(read_text_sets(ExampleFile(tmp_path / "nli.csv")))


def test_neighboring_paragraphs_are_pairs(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("One\nand one.\n\n* * *\n\nTwo.\n\n\nThree.")
    rows = list(read_text_sets(ExampleFile(tmp_path / "book.txt", columns={"positive": "next"})))
    assert [row.texts for row in rows] == [("One and one.", "Two."), ("Two.", "Three.")]
    assert rows[1].location.endswith("book.txt, line 6")
    (tmp_path / "rows.csv").write_text("text\nA\nB\nC\n")
    rows = list(read_text_sets(ExampleFile(tmp_path / "rows.csv", columns={"positive": "next"})))
    assert [row.texts for row in rows] == [("A", "B"), ("B", "C")]
    (tmp_path / "one.txt").write_text("One.\n")
    with pytest.raises(DataError, match="positive=next expects two texts or more"):
        list(read_text_sets(ExampleFile(tmp_path / "one.txt", columns={"positive": "next"})))
