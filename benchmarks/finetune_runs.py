"""Runs of fine-tuning, each in a process and with a result file of its own; one that has its result is not repeated,
unless what it was told has changed since."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from finetune_tasks import MAX_TEST, TASKS, Task, score
from models import MINILM, published_folder
from turns import say
from worker import Worker

from bertkit.json_files import read_json, write_json

SYSTEMS = ("bertkit", "transformers")
SEEDS = {"float32": (0, 1, 2), "bfloat16": (0,)}  # bfloat16 is for its time


@dataclass(frozen=True)
class Run:
    """One training and its evaluation."""

    task: Task
    system: str  # file of finetuners/
    precision: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task.name}-{self.system}-{self.precision}-seed-{self.seed}"


class Runs:
    """All runs, in a folder for each ``scale``, the factor of the numbers of examples."""

    def __init__(self, work: Path, scale: float, threads: int) -> None:
        self.scale, self._threads = scale, threads
        self._folder = work / f"finetune-{scale:g}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._examples = cache(lambda task: task.examples(scale))

    def all(self) -> list[Run]:
        """In the order in which they are done: both systems after each other, every task before the next seed."""
        ranked = sorted((seed, precision) for precision, seeds in SEEDS.items() for seed in seeds)
        return [
            Run(task, system, precision, seed) for seed, precision in ranked for task in TASKS for system in SYSTEMS
        ]

    def result(self, run: Run) -> dict[str, Any] | None:
        """What a run left, if it was told the same."""
        result = read_json(self._folder / f"{run.name}.json")
        return result if result is not None and result["run"] == self._facts(run) else None

    def states(self) -> Iterator[str]:
        """A line for each run."""
        for run in self.all():
            result = self.result(run)
            if result is None:
                yield f"{run.name}: open"
                continue
            metric = run.task.metric
            yield (
                f"{run.name}: finished {result['date']}, {metric} {result['scores'][metric]:.4f}, "
                f"{result['seconds']:.1f} s of training"
            )

    def do(self, run: Run) -> None:
        """Train and evaluate, unless that is done.

        Raises:
            RuntimeError: it failed, or its data are not on this machine.
        """
        if self.result(run) is not None:
            say(f"{run.name}: finished before")
            return
        train, test = self._examples(run.task)
        say(f"{run.name}: {len(train)} examples, {run.task.settings.num_epochs} epochs")
        load_average = round(os.getloadavg()[0], 2)
        settings = replace(run.task.settings, precision=run.precision, seed=run.seed)
        worker = Worker(f"finetuners.{run.system}", "Finetuner", self._threads)
        turn = worker.turn("finetune", published_folder(MINILM), train, test, settings)
        worker.close()
        result = {
            "run": self._facts(run),
            "date": date.today().isoformat(),
            "load_average_before": load_average,
            "num_train": len(train),
            "num_test": len(test),
            "seconds": round(turn.result["seconds"], 3),
            "scores": score(run.task, train, test, turn.result["predictions"]),
            "peak_bytes": turn.peak_bytes,
        }
        write_json(self._folder / f"{run.name}.json", result)
        say(f"{run.name}: {result['seconds']:.1f} s, {run.task.metric} {result['scores'][run.task.metric]:.4f}")

    def _facts(self, run: Run) -> dict[str, Any]:
        """All that a run was told, as JSON has it."""
        facts = {
            "system": run.system,
            "settings": asdict(replace(run.task.settings, precision=run.precision, seed=run.seed)),
            "task": run.task.name,
            "most_examples": [run.task.num_train, MAX_TEST],
            "num_threads": self._threads,
        }
        return json.loads(json.dumps(facts))
