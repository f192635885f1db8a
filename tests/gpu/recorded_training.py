"""Training with recorded gradients on a CUDA device: the losses of training without recordings.

Run by test_simulated_gpu.py.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from families import FAMILIES

from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks.examples import ChoiceQuestion, TaggedText, TextExample
from bertkit.tasks.words import joined
from bertkit.training import batch_gradients, recorded_gradients
from bertkit.training.recorded_gradients import RecordedGradients

WORDS = "the red cat a blue dog and green".split()
TEXTS = [" ".join(WORDS[(number * step) % 8] for step in range(1, 2 + number % 7)) for number in range(40)]
EXAMPLES = {
    "sequence-classification": [TextExample(text, label="long" if len(text) > 12 else "short") for text in TEXTS],
    "multi-label-classification": [TextExample(text, label=tuple(sorted({*text.split()} & {"red", "blue"})))
                                   for text in TEXTS],
    "regression": [TextExample(text, label=float(len(text))) for text in TEXTS],
    "token-classification": [TaggedText(text, joined(text.split())[1], tuple(word[:1] for word in text.split()))
                             for text in TEXTS],
    "multiple-choice": [ChoiceQuestion(text, ("red cat", "a dog", "green"), number % 3)
                        for number, text in enumerate(TEXTS)],
}  # fmt: skip


@pytest.fixture
def recorded(monkeypatch) -> list[RecordedGradients]:
    """The recorders of the runs of a test, for parts that are filled up to a multiple of 32 tokens."""
    made: list[RecordedGradients] = []

    class Listed(RecordedGradients):
        def __init__(self, *given) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(recorded_gradients, "RecordedGradients", Listed)
    monkeypatch.setattr(recorded_gradients, "shape_of", lambda number: -(-number // 32) * 32)
    return made


def losses(out: Path, encoder: Path, task: str, **settings) -> list[float]:
    chosen = FinetuningSettings.of(
        **{"num_epochs": 2, "batch_size": 4, "head": "drawn", "precision": "bfloat16", "learning_rate": 1e-3} | settings
    )
    run = Finetuning(out, encoder, task, chosen, device="cuda", log_line=lambda line: None, compare=False)
    run.start(EXAMPLES[task])
    events = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if event["event"] == "step"]


@pytest.fixture
def without(monkeypatch) -> Callable[[], None]:
    """Compute every part from the call on."""
    return lambda: monkeypatch.setattr(RecordedGradients, "_is_worth_recording", lambda self, key: False)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "modernbert", "nomic_bert", "gte", "roberta"])
def test_losses_are_those_without_recordings(family: str, recorded: list, without, tmp_path: Path) -> None:
    model = FAMILIES[family].our_model("encoder", 4, hidden_size=32, num_attention_heads=4)
    assert model.config.hidden_size == 32
    model.save(tmp_path / "encoder")
    ours = losses(tmp_path / "ours", tmp_path / "encoder", "sequence-classification")
    (recorder,) = recorded
    assert 1 <= len(recorder._recordings) <= 3
    without()
    expected = losses(tmp_path / "expected", tmp_path / "encoder", "sequence-classification")
    assert len(ours) == 20 and ours == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("task", "tokens_per_part"),
    [*((task, None) for task in EXAMPLES), ("sequence-classification", 24), ("token-classification", 24)],
)
def test_every_recordable_task(task: str, tokens_per_part, recorded: list, without, tmp_path: Path) -> None:
    FAMILIES["bert"].our_model("encoder", 4, hidden_size=32, num_attention_heads=4).save(tmp_path / "encoder")
    ours = losses(tmp_path / "ours", tmp_path / "encoder", task, tokens_per_part=tokens_per_part)
    (recorder,) = recorded
    assert recorder._recordings
    without()
    expected = losses(tmp_path / "expected", tmp_path / "encoder", task, tokens_per_part=tokens_per_part)
    assert ours == pytest.approx(expected, rel=1e-6)


def test_filler_changes_nothing(recorded: list, tmp_path: Path, monkeypatch) -> None:
    FAMILIES["bert"].our_model(
        "encoder", 4, hidden_size=32, num_attention_heads=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ).save(tmp_path / "encoder")
    ours = {task: losses(tmp_path / task, tmp_path / "encoder", task) for task in EXAMPLES}
    assert all(recorder._recordings for recorder in recorded)
    monkeypatch.setattr(batch_gradients, "recorder_of", lambda *given: None)
    for task, given in ours.items():
        expected = losses(tmp_path / f"{task}-expected", tmp_path / "encoder", task)
        assert given == pytest.approx(expected, rel=1e-2, abs=1e-2), task


def test_relative_positions_and_other_precisions_are_not_recorded(recorded: list, tmp_path: Path) -> None:
    for family, precision in (("mpnet", "bfloat16"), ("deberta-v2", "bfloat16"), ("bert", "float32")):
        folder = tmp_path / f"{family}-{precision}"
        FAMILIES[family].our_model("encoder", 4, hidden_size=32, num_attention_heads=4).save(folder / "encoder")
        assert losses(folder / "out", folder / "encoder", "regression", precision=precision)
    assert not recorded
