"""What a student of half the layers costs in quality: `bertkit distill` beside its teacher and beside no teacher.

    python benchmarks/distillation.py [--list] [--only NAME] [--scale 1.0] [--threads 2] [--out FOLDER]

Two fine-tuned classifiers (all-MiniLM-L6-v2 on SST-2 and on Banking77) give three of their six layers, a masked LM
pre-trained here (`pretrained.py`) two of its four. The same student is also trained without the teacher, on the same
examples for as many steps. Differences have 95 % bootstrap intervals over test examples, of three seeds' mean. Each run
leaves a file, so that the same command goes on.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import report
import texts
import torch
from finetune_tasks import TASKS, Task, of_files
from finetuners import Settings
from long_runs import LongRuns, add_options
from models import MINILM
from pretrain_evaluation import Evaluator
from pretrained import pretrained_run

import bertkit
from bertkit.evidence import bootstrap_interval
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.finetuning.distillation import Distillation
from bertkit.finetuning.student import student_of
from bertkit.pretraining import Inputs, Pretraining, read_recipe
from bertkit.training.distillation import DistillationSettings, distilled

BANKING = Task(
    "banking77", of_files("banking77/train.csv", "banking77/test.csv"), 5_000, "accuracy",
    Settings("sequence-classification", num_epochs=4, learning_rate=2e-4, max_length=128),
)  # fmt: skip
CLASSIFIERS = {task.name: task for task in (TASKS[0], BANKING)}
NUM_LAYERS, NUM_LAYERS_OF_MASKED_LM = 3, 2
NUM_STEPS, NUM_SEQUENCES, LENGTH = 600, 1_000, 64  # of the masked LM
SEEDS = (0, 1, 2)
WAYS = ("taught", "alone")


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of training and test examples and of steps."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("distillation", out, scale, threads)
        self._models = report.CACHE / f"distillation-{scale:g}"
        torch.set_num_threads(threads)

    def names(self) -> list[str]:
        kinds = [f"{name}-{way}-seed-{seed}" for name in CLASSIFIERS for way in WAYS for seed in SEEDS]
        masked = [f"masked-lm-{way}-seed-{seed}" for way in WAYS for seed in SEEDS]
        return [*(f"{name}-teacher" for name in CLASSIFIERS), "masked-lm-teacher", "masked-lm-start", *kinds, *masked]

    def told(self, name: str) -> dict[str, Any] | None:
        data = next(data for data in (*CLASSIFIERS, "masked-lm") if name.startswith(data))
        way, _, seed = name.removeprefix(f"{data}-").partition("-seed-")
        if way == "taught" and data in CLASSIFIERS and not (self._models / f"{data}-teacher").is_dir():
            return None
        return {"data": data, "way": way, "seed": int(seed or 0), "num_threads": self.threads}

    def perform(self, name: str) -> dict[str, Any]:
        told = self.told(name)
        assert told is not None
        if told["data"] == "masked-lm":
            return self._masked_lm(told["way"], told["seed"])
        return self._classifier(CLASSIFIERS[told["data"]], told["way"], told["seed"])

    def _classifier(self, task: Task, way: str, seed: int) -> dict[str, Any]:
        train, test = task.examples(self.scale)
        told = task.settings
        settings = FinetuningSettings(
            num_epochs=told.num_epochs, learning_rate=told.learning_rate, max_length=told.max_length, seed=seed
        )
        teacher = self._models / f"{task.name}-teacher"
        with tempfile.TemporaryDirectory() as folder:
            start, out = Path(folder, "start"), teacher if way == "teacher" else Path(folder, "out")
            options: dict[str, Any] = {"device": "cpu", "log_line": print, "compare": False, "resumable": False}
            if way == "teacher":
                run = Finetuning(out, MINILM, told.kind, settings, **options)
            else:
                student_of(bertkit.load(teacher if way == "taught" else MINILM, device="cpu"), NUM_LAYERS).save(start)
                if way == "taught":
                    run = Distillation(out, start, told.kind, settings, teacher=teacher, **options)
                else:
                    run = Finetuning(out, start, told.kind, settings, **options)
            run.start(train)
            found = bertkit.load(out, device="cpu").predict([example.text for example in test])
        right = [prediction.label == example.label for prediction, example in zip(found, test, strict=True)]
        return {"metric": "accuracy", "num_train": len(train), "values": np.array(right, int).tolist()}

    def _masked_lm(self, way: str, seed: int) -> dict[str, Any]:
        pretrained = pretrained_run()
        teacher = bertkit.load(pretrained / "model", device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            start, out = Path(folder, "start"), Path(folder, "out")
            if way == "teacher":
                judged = pretrained / "model"
            else:
                student_of(teacher, NUM_LAYERS_OF_MASKED_LM).save(start)
                judged = start
            if way in WAYS:
                changes = (f"data.max_seqlen={LENGTH}", f"training.num_steps={round(NUM_STEPS * self.scale)}",
                           f"training.seed={seed}", "training.learning_rate=5e-4")  # fmt: skip
                corpus = tuple(sorted((texts.DATA / "english_novels").glob("[A-E]*_*.txt")))
                run = Pretraining(out, read_recipe("domain-adapt", changes), Inputs(corpus, model=str(start)),
                                  log_line=print, device="cpu")  # fmt: skip
                if way == "taught":
                    run.make_task = partial(distilled, teacher.network, "masked_lm", DistillationSettings())
                run.start(resume=False)
                judged = out / "model"
            losses = Evaluator(self.threads).losses(judged, pretrained / "held-out", NUM_SEQUENCES)[str(LENGTH)]
        return {"metric": "loss, nats", "num_train": round(NUM_STEPS * self.scale), "values": losses["by_sequence"]}

    def summary(self, result: dict[str, Any]) -> str:
        return f"{result['metric']} {np.mean(result['values']):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    results, options = report.begin("distillation", parser)
    try:
        runs = Runs(options.out, options.scale, options.threads)
        if runs.carry_out(options):
            found = runs.finished()
            rows = [_compared(data, found) for data in (*CLASSIFIERS, "masked-lm")]
            lines = [*report.heading("Distillation", results), "", *_lines(rows)]
            report.finish(results | {"scale": options.scale, "compared": rows}, "\n".join(lines), options.out)
    except RuntimeError as error:
        raise SystemExit(f"distillation: {error}") from None


def _compared(data: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over test examples, and the differences of the student taught from its teacher and from itself alone."""
    teacher = np.array(found[f"{data}-teacher"]["values"], np.float64)
    taught, alone = (np.mean([found[f"{data}-{way}-seed-{seed}"]["values"] for seed in SEEDS], axis=0) for way in WAYS)
    row: dict[str, Any] = {"data": data, "metric": found[f"{data}-teacher"]["metric"], "num_test": len(teacher)}
    row |= {
        name: float(values.mean()) for name, values in zip(("teacher", *WAYS), (teacher, taught, alone), strict=True)
    }
    for name, other in (("teacher", teacher), ("alone", alone)):
        row[f"taught - {name}"] = [float((taught - other).mean()), *bootstrap_interval(taught - other)]
    return row


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| data | metric | teacher | student, taught | student, alone | taught - teacher | taught - alone |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        differences = [f"{value:+.4f} ({low:+.4f} to {high:+.4f})"
                       for value, low, high in (row["taught - teacher"], row["taught - alone"])]  # fmt: skip
        means = [f"{row[name]:.4f}" for name in ("teacher", *WAYS)]
        lines.append(f"| {' | '.join([row['data'], row['metric'], *means, *differences])} |")
    return lines


if __name__ == "__main__":
    main()
