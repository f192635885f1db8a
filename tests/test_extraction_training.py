"""Training of extraction: the loss by a slow reference, learning, resumed runs, and refused input."""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from random_models import write_tokenizer

from bertkit import BertConfig, Model, Tokenizer
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.extraction import open_extractor
from bertkit.extraction.training import ExtractionTraining, ExtractionTrainingSettings
from bertkit.extraction.training_data import ExtractionData, labels_in
from bertkit.extraction.training_folder import new_network, save_network
from bertkit.extraction.training_network import ExtractionLoss
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.tagged_texts import tagged_text

pytestmark = pytest.mark.usefixtures("one_thread")

QUIET: dict[str, Any] = {"device": "cpu", "log_line": lambda line: None}
_NAMES = {"cat": "walk", "dog": "walk", "red": "talk", "blue": "talk", "one": "able", "two": "able"}


def examples(number: int, seed: int) -> list[TaggedText]:
    draw, made = random.Random(seed), []
    for _ in range(number):
        pairs = [(draw.choice([*_NAMES, "of"]), draw.choice(["the", "and", "sat", "mat"])) for _ in range(3)]
        words = [word for pair in pairs for word in pair]  # no two entities are adjacent
        made.append(tagged_text(words, [f"B-{_NAMES[word]}" if word in _NAMES else "O" for word in words]))
    return made


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    files, folder = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("encoder") / "model"
    write_tokenizer(files, 101)
    config = BertConfig(
        vocab_size=101, hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.15,
    )  # fmt: skip
    Model.create(config, Tokenizer.load(files), seed=1).save(folder)
    return str(folder)


def settings_of(scorer: Any, **values: Any) -> ExtractionTrainingSettings:
    return ExtractionTrainingSettings.of(scorer=scorer, **{"num_negatives": 2, "max_width": 3, "dropout": 0.0} | values)


@pytest.mark.parametrize("scorer", ["span", "token"])
def test_loss_is_that_of_the_logits_of_inference(encoder, tmp_path, monkeypatch, scorer):
    chosen, train = settings_of(scorer), examples(5, 3)
    network, tokenizer = new_network(encoder, chosen)
    data = ExtractionData(train, labels_in(train), tokenizer, network.settings, 64, 2, 0)
    batch = data.take(np.arange(5))
    task = ExtractionLoss(weight=2.0)
    loss = task.loss(network(batch.batch, **batch.arguments), batch, task.totals(batch)).value.item()
    save_network(network, tokenizer, tmp_path)
    extractor: Any = open_extractor(tmp_path, device="cpu")
    candidates, seen, total, num_words = extractor._scorer.candidates, [], 0.0, 0

    def record(logits: np.ndarray, *rest: Any) -> Any:
        seen.append(logits)
        return candidates(logits, *rest)

    monkeypatch.setattr(extractor._scorer, "candidates", record)
    for number, example in enumerate(train):
        labels = data.labels_of(number, 0)
        extractor.extract([example.text], labels)
        logits = seen.pop()
        tags = example.tags or ()
        num_words += len(tags)
        for word, tag in enumerate(tags):
            for column, label in enumerate(labels):
                is_entity = tag == f"B-{label}"
                for third in range(3):
                    score = float(logits[word, column, third] if scorer == "token" else logits[word, third, column])
                    if np.isfinite(score):  # spans beyond the last word have no score
                        truth = is_entity and (scorer == "token" or third == 0)
                        total += (2 if truth else 1) * np.log1p(np.exp(-score if truth else score))
    assert loss == pytest.approx(total / num_words, rel=1e-4)


def test_labels_that_do_not_occur_are_drawn_by_seed_and_epoch(encoder):
    train = examples(30, 3)
    network, tokenizer = new_network(encoder, settings_of("span"))
    draws = [ExtractionData(train, labels_in(train), tokenizer, network.settings, 64, 1, seed) for seed in (0, 0, 1)]
    first, again, other = ([data.labels_of(i, 0) for i in range(30)] for data in draws)
    assert first == again != other and first != [draws[0].labels_of(i, 1) for i in range(30)]
    for part, labels in zip(draws[0].parts, first, strict=True):
        present = {label for *_, label in part.entities}
        assert present <= set(labels) and labels == sorted(labels) and len(labels) == min(3, len(present) + 1)


def test_new_words_are_no_entities_before_training(encoder):
    train = examples(20, 3)
    network, tokenizer = new_network(encoder, settings_of("token"))
    batch = ExtractionData(train, labels_in(train), tokenizer, network.settings, 64, 2, 0).take(np.arange(20))
    with torch.no_grad():
        shares = torch.cat([logits.sigmoid().flatten() for logits in network(batch.batch, **batch.arguments)])
    assert shares.min() > 0 and shares.max() < 0.1


def test_rate_by_width_and_epochs_by_number_of_texts():
    loop = ExtractionTrainingSettings().of_loop
    found = [(loop(number, width).learning_rate, loop(number, width).num_steps)
             for number, width in ((100, 384), (100, 512), (100, 768), (10_000, 768))]  # fmt: skip
    assert found == [(3e-4, 260), (3e-4, 260), (5e-5, 260), (5e-5, 3_750)]
    chosen = ExtractionTrainingSettings.of(learning_rate=1e-3, num_epochs=2).of_loop(100, 384)
    assert (chosen.learning_rate, chosen.num_steps) == (1e-3, 26)


def test_labels_of_another_file_are_not_said_to_be_absent(encoder):
    def of_file(name: str, labels: str) -> list[TaggedText]:
        made = [tagged_text(["cat", "the"], [f"B-{label}", "O"]) for label in labels]
        return [replace(text, location=f"{name}.conll, line {line}") for line, text in enumerate(made)]

    train = [
        *of_file("a", "xyx"),
        *of_file("b", "vw"),
        replace(tagged_text(["the"], ["O"]), location="c.conll, line 1"),
    ]
    network, tokenizer = new_network(encoder, settings_of("token"))
    data = ExtractionData(train, labels_in(train), tokenizer, network.settings, 64, 9, 0)
    assert [data.labels_of(i, 0) for i in range(6)] == [["x", "y"]] * 3 + [["v", "w"]] * 2 + [["v", "w", "x", "y"]]


@pytest.mark.full
@pytest.mark.parametrize(("scorer", "num_steps"), [("span", 160), ("token", 80)])
def test_finds_the_entities_of_a_synthetic_set(encoder, tmp_path, capsys, scorer, num_steps):
    chosen = settings_of(scorer, num_steps=num_steps, learning_rate=5e-3, layer_rate_factor=1.0)
    outcome = ExtractionTraining(tmp_path / "out", encoder, chosen, **QUIET).start(examples(300, 1), examples(40, 2))
    assert outcome.metrics["f1"] > 0.95
    assert (
        run(["extract", "red the of sat dog mat", "--labels", "able,talk,walk", "--model", str(tmp_path / "out")]) == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["text"], row["label"]) for row in rows] == [("red", "talk"), ("dog", "walk")]
    assert "able, talk, walk" in (tmp_path / "out" / "README.md").read_text()


def test_stopped_run_resumes_with_the_same_bits(encoder, tmp_path):
    train, dev, files = examples(60, 1), examples(10, 2), []
    for name, stops_at in (("whole", None), ("parts", 4)):
        training = ExtractionTraining(tmp_path / name, encoder, settings_of("token", num_steps=8, dropout=0.1), **QUIET)
        if stops_at is not None:
            answers = iter([False] * stops_at + [True] * 9)
            assert training.start(train, dev, should_stop=answers.__next__).reason == "stopped"
            torch.rand(7)  # another process has another state of torch's generator
        outcome = training.start(train, dev, resume=stops_at is not None)
        assert outcome.reason == "finished" and training.start(train, dev, resume=True) == outcome
        files.append((tmp_path / name / "model.safetensors").read_bytes())
    assert files[0] == files[1]
    moved = [*train[:30], *(replace(example, location="b.jsonl, line 1") for example in train[30:])]
    with pytest.raises(UsageError, match="examples_of_files"):  # of another file: other labels are absent
        training.start(moved, dev, resume=True)


def test_texts_that_cannot_be_learned_are_refused(encoder, tmp_path):
    training = ExtractionTraining(tmp_path / "out", encoder, settings_of("span", num_steps=1), **QUIET)
    with pytest.raises(DataError, match="no examples to train on"):
        training.start([])
    with pytest.raises(DataError, match="none of the 1 training texts has an entity"):
        training.start([tagged_text(["the", "mat"], ["O", "O"])])
    inside = TaggedText("the well_known cat", ((0, 3), (4, 8), (8, 14), (15, 18)), ("O", "B-x", "O", "O"), "a.jsonl:3")
    with pytest.raises(DataError, match=r"a.jsonl:3: the entity 'well' \(x, characters 4 to 8\) begins or ends inside"):
        training.start([inside])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([[0, 3, "x"], [0, 7, "y"]], "overlap"),
        ([[1, 3, "x"]], "inside a word"),
        ([], "has an entity"),
    ],
)
def test_command_refuses_bad_files_in_one_line(encoder, tmp_path, capsys, spans, words):
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps({"text": "the cat", "spans": spans}) + "\n")
    command = ["finetune", "extraction", "--train", str(file), "--out", str(tmp_path / "out"), "--model", encoder]
    assert run(command) == 2
    error = capsys.readouterr().err.splitlines()
    assert words in error[-1] and len([line for line in error if "error" in line.lower()]) <= 1


def test_command_trains_from_a_conll_file(encoder, tmp_path, capsys):
    (tmp_path / "a.conll").write_text("the O\nred B-color\ncat B-animal\n\ndog B-animal\nsat O\n")
    command = ["finetune", "extraction", "--train", str(tmp_path / "a.conll"), "--dev", str(tmp_path / "a.conll"),
               "--out", str(tmp_path / "out"), "--model", encoder, "--num-steps", "2", "--scorer", "token"]  # fmt: skip
    assert run(command) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["reason"] == "finished" and 0 <= row["f1"] <= 1
    assert open_extractor(tmp_path / "out").settings.of_tokens
