"""bertkit: `Finetuning` of a randomly initialized head, without dev examples and without checkpoints to resume from."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from trainers import ByName

import bertkit
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import task_kind
from finetuners import NUM_WARM_UP_STEPS, Facts, Settings


class Finetuner(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def finetune(self, model: Path, train: Sequence[Any], test: Sequence[Any], settings: Settings) -> Facts:
        with tempfile.TemporaryDirectory() as folder:
            some = train[: NUM_WARM_UP_STEPS * settings.batch_size]
            alone = {id(example) for example, _ in task_kind(settings.kind).unusable_examples(some)}
            some = [example for example in some if id(example) not in alone]
            _run(Path(folder, "warm-up"), model, some, replace(settings, num_epochs=1))
            out = Path(folder, "out")
            events = _run(out, model, train, settings)
            predictions = bertkit.load(out, device="cpu").predict(test)
        return {"seconds": events[-1]["seconds"], "predictions": [plain(one) for one in predictions]}

    def losses(self, model: Path, train: Sequence[Any], settings: Settings) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            events = _run(Path(folder, "out"), model, train, settings, every_loss=True)
        return [event["loss"] for event in events if event["event"] == "step"]


def _run(
    out: Path, model: Path, train: Sequence[Any], settings: Settings, *, every_loss: bool = False
) -> list[dict[str, Any]]:
    """Train a model; returns the logged events. The last one is the end of training, before the model is written."""
    chosen = FinetuningSettings.of(
        num_epochs=settings.num_epochs, batch_size=settings.batch_size, learning_rate=settings.learning_rate,
        warmup=settings.warmup, weight_decay=settings.weight_decay, clip_norm=settings.clip_norm,
        max_length=settings.max_length, precision=settings.precision, seed=settings.seed, head="drawn",
        log_every=1 if every_loss else None,
    )  # fmt: skip
    options = {} if settings.max_answer_length is None else {"max_answer_length": settings.max_answer_length}
    run = Finetuning(
        out, model, settings.kind, chosen, options, device="cpu", log_line=lambda line: None, resumable=False
    )
    run.start(train)
    return [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]


def plain(prediction: Any) -> Any:
    """A typed prediction as the value that is scored."""
    match type(prediction).__name__:
        case "LabelPrediction":
            return prediction.label
        case "ScorePrediction":
            return prediction.score
        case "TagsPrediction":
            return prediction.labels
        case "AnswerPrediction":
            return prediction.answer.text if prediction.answer is not None else ""
        case "ChoicePrediction":
            return prediction.choice
        case other:
            raise TypeError(f"no plain value for {other}")
