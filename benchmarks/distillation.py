"""Quality of a student with half of the layers: `bertkit distill` compared with its teacher, and with the same student
trained without a teacher.

    python benchmarks/distillation.py [--list] [--only PATTERN] [--scale 1.0] [--threads 2] [--out FOLDER]

The teachers are all-MiniLM-L6-v2 fine-tuned on SST-2 and on Banking77, and all-MiniLM-L6-v2 with a masked LM head
trained on novels; the students have three of the six layers. The same layers are also trained without the teacher, on
the same examples for the same number of steps. Differences of the means over seeds have 95 % bootstrap intervals over
test examples. Each finished run writes a file, so the same command resumes.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import report
import torch
from finetune_tasks import TASKS, Task, of_files
from finetuners import Settings
from long_runs import LongRuns, add_options
from models import MINILM
from pretrain_evaluation import Evaluator
from pretrained import corpus, held_out
from turns import say

import bertkit
from bertkit.corpus.shard_writing import ShardSettings, write_shard
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
NUM_LAYERS = 3
TEACHER_STEPS, NUM_STEPS, BATCH_SIZE, LENGTH, NUM_SEQUENCES = 600, 400, 32, 64, 1_000  # of the masked LM
WAYS = ("taught", "alone")
MASKED_LM = "masked-lm"
SEEDS = {**dict.fromkeys(CLASSIFIERS, (0, 1)), MASKED_LM: (0,)}  # a masked LM trains for a quarter of an hour


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of training and test examples and of steps."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("distillation", out, scale, threads)
        self._models = report.CACHE / f"distillation-{scale:g}"
        torch.set_num_threads(threads)

    def names(self) -> list[str]:
        students = [f"{kind}-{way}-seed-{seed}" for kind, seeds in SEEDS.items() for seed in seeds for way in WAYS]
        return [*(f"{kind}-teacher" for kind in SEEDS), *students]

    def definition(self, name: str) -> dict[str, Any] | None:
        kind = next(kind for kind in (*CLASSIFIERS, MASKED_LM) if name.startswith(kind))
        way, _, seed = name.removeprefix(f"{kind}-").partition("-seed-")
        if way != "teacher" and self.result(f"{kind}-teacher") is None:
            return None
        return {"data": kind, "way": way, "seed": int(seed or 0), "num_threads": self.threads}

    def is_timed(self, name: str) -> bool:
        return name.endswith("-teacher")  # before its students

    def perform(self, name: str) -> dict[str, Any]:
        run = self.definition(name)
        assert run is not None
        if run["data"] == MASKED_LM:
            return self._masked_lm(run["way"], run["seed"])
        return self._classifier(CLASSIFIERS[run["data"]], run["way"], run["seed"])

    def _classifier(self, task: Task, way: str, seed: int) -> dict[str, Any]:
        (train, _), (_, test) = task.examples(self.scale), task.examples(1.0)
        shared = task.settings
        settings = FinetuningSettings.of(
            num_epochs=shared.num_epochs, learning_rate=shared.learning_rate, max_length=shared.max_length, seed=seed
        )
        teacher = self._models / f"{task.name}-teacher"
        with tempfile.TemporaryDirectory() as folder:
            start, out = Path(folder, "start"), teacher if way == "teacher" else Path(folder, "out")
            options: dict[str, Any] = {"device": "cpu", "log_line": say, "compare": False, "resumable": False}
            if way == "teacher":
                run = Finetuning(out, MINILM, shared.kind, settings, **options)
            else:
                student_of(bertkit.load(teacher if way == "taught" else MINILM, device="cpu"), NUM_LAYERS).save(start)
                if way == "taught":
                    run = Distillation(out, start, shared.kind, settings, teacher=teacher, **options)
                else:
                    run = Finetuning(out, start, shared.kind, settings, **options)
            run.start(train)
            found = bertkit.load(out, device="cpu").predict([example.text for example in test])
        right = [prediction.label == example.label for prediction, example in zip(found, test, strict=True)]
        return {"metric": "accuracy", "num_train": len(train), "values": np.array(right, int).tolist()}

    def _masked_lm(self, way: str, seed: int) -> dict[str, Any]:
        teacher, start, number = self._models / f"{MASKED_LM}-teacher", MINILM, TEACHER_STEPS
        with tempfile.TemporaryDirectory() as folder:
            out = teacher if way == "teacher" else Path(folder, "out")
            if way != "teacher":
                start, number = str(Path(folder, "start")), NUM_STEPS
                student_of(bertkit.load(teacher / "model", device="cpu"), NUM_LAYERS).save(start)
            changes = (f"data.max_seqlen={LENGTH}", f"training.num_steps={round(number * self.scale)}",
                       f"training.seed={seed}", f"training.batch_size={BATCH_SIZE}",
                       "training.learning_rate=3e-4")  # fmt: skip
            inputs = Inputs(corpus(), model=start, new_head=way == "teacher")
            run = Pretraining(out, read_recipe("domain-adapt", changes), inputs, log_line=say, device="cpu")
            if way == "taught":
                network = bertkit.load(teacher / "model", device="cpu").network
                run.make_task = partial(distilled, network, "masked_lm", DistillationSettings())
            run.start(resume=way == "teacher")
            losses = Evaluator(self.threads).losses(out / "model", self._held_out(teacher), NUM_SEQUENCES)
        return {"metric": "loss, nats", "num_train": round(number * self.scale) * BATCH_SIZE,
                "values": losses[str(LENGTH)]["by_sequence"]}  # fmt: skip

    def _held_out(self, teacher: Path) -> Path:
        """The shard of authors that no model was trained on."""
        folder = self._models / "held-out"
        write_shard(held_out(), folder, bertkit.load(teacher / "model", device="cpu").tokenizer, ShardSettings())
        return folder

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
            rows = [_compared(data, found) for data in (*CLASSIFIERS, MASKED_LM)]
            lines = [*report.heading("Distillation", results, found.values()), "", *_lines(rows)]
            report.finish(results | {"scale": options.scale, "compared": rows}, "\n".join(lines), options.out)
    except RuntimeError as error:
        raise SystemExit(f"distillation: {error}") from None


def _compared(data: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over test examples, and the differences of the taught student from its teacher and from the student without
    a teacher."""
    teacher = np.array(found[f"{data}-teacher"]["values"], np.float64)
    taught, alone = (
        np.mean([found[f"{data}-{way}-seed-{seed}"]["values"] for seed in SEEDS[data]], axis=0) for way in WAYS
    )
    row: dict[str, Any] = {
        "data": data,
        "metric": found[f"{data}-teacher"]["metric"],
        "num_test": len(teacher),
        "num_seeds": len(SEEDS[data]),
    }
    row |= {
        name: float(values.mean()) for name, values in zip(("teacher", *WAYS), (teacher, taught, alone), strict=True)
    }
    for name, other in (("teacher", teacher), ("alone", alone)):
        row[f"taught - {name}"] = [float((taught - other).mean()), *bootstrap_interval(taught - other)]
    return row


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| data | seeds | metric | teacher | taught student | alone | taught - teacher | taught - alone |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        differences = [f"{value:+.4f} ({low:+.4f} to {high:+.4f})"
                       for value, low, high in (row["taught - teacher"], row["taught - alone"])]  # fmt: skip
        means = [f"{row[name]:.4f}" for name in ("teacher", *WAYS)]
        lines.append(f"| {' | '.join([row['data'], str(row['num_seeds']), row['metric'], *means, *differences])} |")
    return lines


if __name__ == "__main__":
    main()
