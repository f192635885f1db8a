"""Runs of fine-tuning, each with a separate process and result file."""

from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from finetune_tasks import MAX_TEST, TASKS, Task, score
from finetuners import Settings
from long_runs import LongRuns
from models import MINILM, published_folder
from worker import Worker

SYSTEMS = ("bertkit", "transformers")
TIMED_SEED = 0  # its runs have the machine for themselves; those of the other seeds are for their scores, a thread each
SEEDS = {"float32": (TIMED_SEED, 1, 2), "bfloat16": (TIMED_SEED,)}


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

    @property
    def settings(self) -> Settings:
        return replace(self.task.settings, precision=self.precision, seed=self.seed)


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of the numbers of examples."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("finetune", out, scale, threads)
        self._examples = cache(lambda task: task.examples(scale))
        self._runs = {run.name: run for run in _all()}

    def is_timed(self, name: str) -> bool:
        return self._runs[name].seed == TIMED_SEED

    def of(self, task: Task, system: str, precision: str) -> list[str]:
        """The names of the runs of all seeds."""
        return [Run(task, system, precision, seed).name for seed in SEEDS[precision]]

    def names(self) -> list[str]:
        return list(self._runs)

    def definition(self, name: str) -> dict[str, Any]:
        run = self._runs[name]
        return {
            "system": run.system,
            "settings": asdict(run.settings),
            "task": run.task.name,
            "most_examples": [run.task.num_train, MAX_TEST],
            "num_threads": self._num_threads(run),
        }

    def perform(self, name: str) -> dict[str, Any]:
        """Train, and predict the test examples."""
        run = self._runs[name]
        train, test = self._examples(run.task)
        worker = Worker(f"finetuners.{run.system}", "Finetuner", self._num_threads(run))
        turn = worker.turn("finetune", published_folder(MINILM), train, test, run.settings)
        worker.close()
        return {
            "num_train": len(train),
            "num_test": len(test),
            "metric": run.task.metric,
            "scores": score(run.task, train, test, turn.result["predictions"]),
            "seconds": round(turn.result["seconds"], 3),
            "peak_bytes": turn.peak_bytes,
        }

    def summary(self, result: dict[str, Any]) -> str:
        metric = result["metric"]
        return f"{metric} {result['scores'][metric]:.4f}, {result['seconds']:.1f} s of training"

    def _num_threads(self, run: Run) -> int:
        return self.threads if run.seed == TIMED_SEED else 1


def _all() -> list[Run]:
    """All runs in order of execution: the systems after each other, and all tasks before the next seed."""
    ranked = sorted((seed, precision) for precision, seeds in SEEDS.items() for seed in seeds)
    return [Run(task, system, precision, seed) for seed, precision in ranked for task in TASKS for system in SYSTEMS]
