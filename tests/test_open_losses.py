"""A loss is a class and one line in the registry: a new one works with training, resumption, prediction and commands.

Everything that a loss needs is in its class; the line of the registry is `OBJECTIVES[...] = ...` below.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from examples_of_tasks import WORDS, call
from sentence_transformers.sentence_transformer import losses as theirs
from torch import Tensor

from bertkit import SentenceEncoder, TextSet, load
from bertkit.batch import LabelColumns
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import (
    OBJECTIVES,
    BatchLoss,
    CrossEncoding,
    ScoreLoss,
    SentenceLoss,
    Similarity,
    loss_parameter,
)
from bertkit.tasks.field_types import AboveZero
from bertkit.tasks.losses.pairs import Cosent
from bertkit.tasks.similarity.rows import Roles

pytestmark = pytest.mark.usefixtures("one_thread", "registered")


# ---- a file for each loss


@dataclass(frozen=True)
class Angle(SentenceLoss):
    """AnglE (Li & Li 2024): as CoSENT, with angles between vectors of complex numbers instead of cosines."""

    sharpness: AboveZero = loss_parameter(20.0, "factor of the angles")

    needs: ClassVar = "scores"
    metrics: ClassVar[tuple[str, ...]] = ("angle_per_row",)

    def __call__(self, vectors: Tensor, roles: Roles) -> BatchLoss:
        first, second = (
            torch.complex(*part.chunk(2, dim=1)) for part in (vectors[roles.document_queries], vectors[roles.documents])
        )
        quotient = torch.view_as_real(first * second.conj()) / (first.norm(dim=1) * second.norm(dim=1))[:, None, None]
        angles = quotient.sum(dim=(1, 2)).abs()
        loss = Cosent(1 / self.sharpness).of_scores(angles, roles.document_scores, roles.rows)
        return BatchLoss(loss, {"angle_per_row": float(angles.detach().sum())})


@dataclass(frozen=True)
class AbsoluteError(ScoreLoss):
    """Absolute difference of score and target, averaged over pairs."""

    tasks: ClassVar[tuple[str, ...]] = ("similarity", "cross-encoder")
    needs: ClassVar = "scores"

    def of_scores(self, scores: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        return (scores - targets).abs().mean()


# ---- everything else


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "angle", Angle)
    monkeypatch.setitem(OBJECTIVES, "absolute-error", AbsoluteError)
    for module in ("finetune", "task_options"):  # they read the options of all tasks
        monkeypatch.delitem(sys.modules, f"bertkit.cli.{module}", raising=False)


def rows(number: int, seed: int) -> list[TextSet]:
    """Pairs whose score is the share of words that they have in common."""
    draw, results = np.random.default_rng(seed), []
    for _ in range(number):
        words = draw.choice(WORDS, 8, replace=False)
        shared = int(draw.integers(0, 5))
        first, second = words[:4], [*words[:shared], *words[4 : 8 - shared]]
        results.append(TextSet(" ".join(first), (" ".join(second),), (), shared / 4))
    return results


def write(path: Path, data: list[TextSet], has_scores: bool = True) -> str:
    keys = ("sentence1", "sentence2", "score") if has_scores else ("anchor", "positive")
    lines = [dict(zip(keys, (row.query, *row.positives, row.score), strict=False)) for row in data]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def test_commands_work_with_a_new_loss(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files, out = [write(tmp_path / f"{seed}.jsonl", rows(40, seed)) for seed in (1, 2)], tmp_path / "out"
    code, (result,), error = call(
        capsys, "finetune", "similarity", "--model", str(encoder), "--train", files[0], "--dev", files[1], "--out",
        str(out), "--objective", "angle", "--sharpness", "10", "--num-epochs", "8", "--learning-rate", "0.01",
        "--batch-size", "8",
    )  # fmt: skip
    assert code == 0 and result["spearman"] > 0.3, error
    task = load(out).trained.task
    assert task == Similarity(objective="angle", loss_parameters={"sharpness": 10}, kind="scores")
    assert task.losses == (Angle(10),)
    card = (out / "README.md").read_text()
    assert "| objective | angle |" in card and "| loss parameters | sharpness=10 |" in card
    steps = [json.loads(line) for line in (out / "run/metrics.jsonl").read_text().splitlines()]
    assert all(0 < line["angle_per_row"] < 1.5 for line in steps if line["event"] == "step")

    code, predictions, _ = call(capsys, "predict", "--model", str(out), "--input", files[1])
    expected = [prediction.score for prediction in load(out).predict(rows(40, 2))]
    assert code == 0 and [row["score"] for row in predictions] == pytest.approx(expected, abs=1e-6)
    assert run(["finetune", "similarity", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "--sharpness FLOAT: For similarity with angle: factor of the angles (default 20.0)" in printed


def test_resumed_run_has_the_same_weights(encoder: Path, tmp_path: Path) -> None:
    def training(name: str) -> Finetuning:
        settings = FinetuningSettings.of(num_epochs=2, batch_size=4, learning_rate=0.01)
        options = {"objective": "angle", "sharpness": 10.0}
        return Finetuning(tmp_path / name, encoder, "similarity", settings, options, log_line=lambda line: None)

    steps: list[int] = []
    training("whole").start(rows(20, 1))
    stopped = training("parts").start(rows(20, 1), should_stop=lambda: steps.append(1) or len(steps) > 4)
    assert stopped.reason == "stopped"
    training("parts").start(rows(20, 1), resume=True)
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_loss_equals_that_of_sentence_transformers() -> None:
    draw = torch.Generator().manual_seed(3)
    queries, documents = (torch.randn(6, 10, generator=draw, dtype=torch.float64) for _ in range(2))
    targets = torch.rand(6, generator=draw, dtype=torch.float64)
    rows, roles, none = torch.arange(6).repeat_interleave(2), torch.arange(2).repeat(6), torch.zeros(12, 0)
    scores = targets.repeat_interleave(2)
    labels = LabelColumns(
        row=rows, role=roles, text=torch.arange(12), score=scores, dataset=rows * 0, guide=none, known=none
    )
    vectors = torch.stack([queries, documents], dim=1).flatten(0, 1)
    loss = Similarity(objective="angle", kind="scores").batch_loss(vectors, Roles.of(labels))
    model: Any = torch.nn.Identity()
    expected = theirs.AnglELoss(model).compute_loss_from_embeddings([queries, documents], targets)
    assert float(loss.value) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("task", ["similarity", "cross-encoder"])
def test_loss_of_scores_trains_both_encoders(task: str, encoder: Path, tmp_path: Path) -> None:
    settings = FinetuningSettings.of(num_epochs=40, batch_size=8, learning_rate=0.01)
    options = {"objective": "absolute-error"}
    Finetuning(tmp_path / "out", encoder, task, settings, options, log_line=lambda line: None).start(rows(8, 1))
    model = load(tmp_path / "out")
    assert model.trained.task.losses == (AbsoluteError(),)
    lines = [json.loads(line) for line in (tmp_path / "out/run/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "step"]
    assert len(losses) == 40 and losses[-1] < 0.8 * losses[0]
    assert len(model.predict(rows(5, 2))) == 5


def test_estimator_has_the_parameter(encoder: Path) -> None:
    data = rows(12, 1)
    estimator = SentenceEncoder(encoder, objective="angle", sharpness=5.0, num_epochs=1, device="cpu")
    assert estimator.get_params()["sharpness"] == 5
    estimator.fit([(row.query, row.positives[0]) for row in data], [row.score for row in data])
    assert estimator.model_.trained.task.losses == (Angle(5.0),)


@pytest.mark.parametrize(
    ("has_scores", "options", "message"),
    [
        (False, ["--objective", "angle"], "--objective angle needs a score for each pair, and no row has one"),
        (True, ["--sharpness", "3"], "sharpness has no effect on --objective cosent, only on angle"),
        (True, ["--objective", "angle", "--margin", "1"], "margin has no effect on --objective angle, only on triplet"),
        (True, ["--objective", "angle", "--sharpness", "0"], "--sharpness 0.0: expected a number above 0"),
        (True, ["--objective", "in-batch"], "takes rows without scores: use cosent, cosine, contrastive, angle"),
    ],
)
def test_bad_input_is_refused_before_the_first_step(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, has_scores: bool, options: list[str], message: str
) -> None:
    train = write(tmp_path / "train.jsonl", rows(10, 1), has_scores)
    arguments = ["finetune", "similarity", "--model", str(encoder), "--train", train, "--out", str(tmp_path / "out")]
    code, _, printed = call(capsys, *arguments, *options)
    assert code == 2 and message in printed and "Traceback" not in printed
    assert not (tmp_path / "out").exists()


def test_loss_of_another_task_or_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="objective='angle': expected one of cross-entropy"):
        CrossEncoding.of_examples(rows(4, 1), {"objective": "angle"})
    with pytest.raises(DataError, match="objective=absolute-error needs a score for each pair"):
        CrossEncoding.of_examples([TextSet("a", ("b",), ("c",)), TextSet("d", ("e",))], {"objective": "absolute-error"})
    with pytest.raises(
        UsageError,
        match="similarity has no loss with levels: expected any of temperature, directions, margin, sharpness",
    ):
        Similarity(objective="cosent", loss_parameters={"levels": 2})
