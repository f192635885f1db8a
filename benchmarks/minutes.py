"""Fine-tuning within 1, 5 and 20 minutes: scores by time limit, and the time that was used.

    python benchmarks/minutes.py [--list] [--only PATTERN] [--scale 1.0] [--threads 2] [--out FOLDER]

all-MiniLM-L6-v2 is fine-tuned on texts and pairs without dev examples, so a part of the training rows selects the
model. Each finished run writes a file of results, so the same command resumes; the table shows the finished runs. All
runs take about fifteen hours.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
import torch
from default_settings import DATA, MAX_TEST, draw_examples
from finetune_tasks import score
from finetuners.bertkit import plain
from long_runs import LongRuns, add_options
from models import MINILM, published_folder

from bertkit import load
from bertkit.finetuning import Finetuning, FinetuningSettings, start_run

MINUTES, SIZES, SEEDS = (1, 5, 20), (300, 1_000, 3_000), (0, 1, 2)
NAMES = ("banking77", "sst2", "tweets", "mrpc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    results, options = report.begin("minutes", parser)
    torch.set_num_threads(options.threads)
    try:
        runs = Runs(options.out, options.scale, options.threads)
        runs.carry_out(options)
        if options.list:
            return
        results["runs"] = {name: result for name in runs.names() if (result := runs.result(name)) is not None}
        title = report.heading("Fine-tuning within a number of minutes", results, results["runs"].values())
        report.finish(results, "\n".join([*title, *describe(results["runs"])]), options.out)
    except RuntimeError as error:
        raise SystemExit(f"minutes: {error}") from None


@dataclass(frozen=True)
class Run:
    """One run of the benchmark."""

    data: str
    size: int
    minutes: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}-{self.size}-{self.minutes}-minutes-seed-{self.seed}"


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of the minutes."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("minutes", out, scale, threads)
        order = itertools.product(SEEDS, MINUTES, SIZES, NAMES)
        runs = [Run(data, size, minutes, seed) for seed, minutes, size, data in order]
        self.runs = {run.name: run for run in runs}

    def names(self) -> list[str]:
        return list(self.runs)

    def definition(self, name: str) -> dict[str, Any]:
        run = self.runs[name]
        return {"data": run.data, "rows": run.size, "minutes": run.minutes, "seed": run.seed, "most_test": MAX_TEST}

    def summary(self, result: dict[str, Any]) -> str:
        return f"{result['metric']} {result['score']:.4f} (frozen {result['frozen']:.4f}), {result['seconds']:.0f} s"

    def perform(self, name: str) -> dict[str, Any]:
        """Find the best model within the minutes; its score and that of frozen features on the test examples."""
        one = self.runs[name]
        task = DATA[one.data]
        train, test = draw_examples(one.data, one.seed, one.size, MAX_TEST)
        settings = FinetuningSettings.of(
            max_length=128, precision="bfloat16", seed=one.seed, minutes=one.minutes * self.scale
        )
        with tempfile.TemporaryDirectory() as folder:
            run = Finetuning(
                Path(folder) / "model", published_folder(MINILM), task.settings.kind, settings, {}, device="cpu",
                log_line=lambda line: None, resumable=False,
            )  # fmt: skip
            frozen = run.frozen(train, test).predictions
            start = time.perf_counter()
            outcome = start_run(run, train)
            seconds = time.perf_counter() - start
            predictions = load(run.out, precision="bfloat16", device="cpu").predict(test)
        scores = [score(task, train, test, [plain(each) for each in every]) for every in (frozen, predictions)]
        return {
            "num_train": len(train),
            "num_test": len(test),
            "metric": task.metric,
            "frozen": scores[0][task.metric],
            "score": scores[1][task.metric],
            "seconds": round(seconds, 1),
            "tried": outcome.tried,
        }


def describe(runs: dict[str, dict[str, Any]]) -> list[str]:
    """A row for each data set and number of rows: frozen features, then score and seconds by minutes."""
    rows = []
    for data in NAMES:
        for size in SIZES:
            found = {
                minutes: [runs[key] for seed in SEEDS if (key := Run(data, size, minutes, seed).name) in runs]
                for minutes in MINUTES
            }
            some = [run for of_minutes in found.values() for run in of_minutes]
            if some:
                frozen = f"{100 * statistics.mean(run['frozen'] for run in some):.1f}"
                rows.append([data, f"{size}", frozen, *(_cell(found[minutes]) for minutes in MINUTES)])
    header = ["data", "rows", "frozen", *(f"{minutes} min" for minutes in MINUTES)]
    return [
        report.markdown_table(header, *rows),
        "",
        f"all-MiniLM-L6-v2, bfloat16, scores in hundredths on at most {MAX_TEST:,} test examples (accuracy, of mrpc "
        "F1), none of which chose anything: mean over seeds, and in brackets the number of seeds, the seconds that the "
        "longest run took, and how many models it trained.",
        "",
    ]


def _cell(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return ""
    longest = max(runs, key=lambda run: run["seconds"])
    mean = 100 * statistics.mean(run["score"] for run in runs)
    return f"{mean:.1f} ({len(runs)}, {longest['seconds']:.0f} s, {len(longest['tried'])})"


if __name__ == "__main__":
    main()
