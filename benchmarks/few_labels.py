"""Eight examples per class: bertkit's few-shot classifier compared with SetFit's method, with the same encoder and
examples.

    python benchmarks/few_labels.py [--draws 1] [--list] [--only PATTERN] [--scale 1.0] [--threads 2] [--out FOLDER]

Data: eight training texts of each of the 77 classes of Banking77; the score is the accuracy on the whole test file. One
draw of training texts takes half an hour, of which bertkit takes three minutes. Every run is a separate process, and
writes a file of results when it is finished, so the same command resumes, also with more draws. ``--scale`` is the
share of the classes, for a short test.
"""

import argparse
import csv
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import report
import texts
from classifiers import SYSTEMS, System
from long_runs import LongRuns, add_options
from worker import Worker

from bertkit.evidence import bootstrap_interval

NUM_EXAMPLES = 8
OURS, THEIRS = "bertkit", "setfit"
_TIMES = ("learn", "predict")

Rows = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    parser.add_argument("--draws", type=int, default=1, choices=range(1, 6), help="of the examples, each a seed")
    results, options = report.begin("few-labels", parser)
    try:
        runs = FewLabels(options.out, options.scale, options.threads, options.draws)
        if runs.carry_out(options):
            results |= runs.gather()
            title = report.heading("Few labels", results, runs.finished().values())
            report.finish(results, "\n".join([*title, *describe(results)]), options.out)
    except RuntimeError as error:
        raise SystemExit(f"few_labels: {error}") from None


class FewLabels(LongRuns):
    """All runs of some draws; ``scale`` is the share of the classes.

    Raises:
        RuntimeError: Banking77 is not on this machine.
    """

    def __init__(self, out: Path, scale: float, threads: int, num_draws: int) -> None:
        super().__init__("few-labels", out, scale, threads)
        self._seeds = range(num_draws)
        self._train, self._test = _rows("train"), _rows("test")
        names = sorted({label for _, label in self._train})
        self._classes = set(names[: max(2, round(len(names) * scale))])
        self._test = [row for row in self._test if row[1] in self._classes]

    def names(self) -> list[str]:
        return [f"{system.name}-seed-{seed}" for seed in self._seeds for system in SYSTEMS]

    def definition(self, name: str) -> dict[str, Any]:
        system, seed = self._find(name)
        return {"system": asdict(system), "seed": seed, "num_examples": NUM_EXAMPLES, "num_threads": self.threads}

    def summary(self, result: dict[str, Any]) -> str:
        return f"accuracy {result['accuracy']:.4f}, {result['seconds_to_learn']:.1f} s to learn"

    def perform(self, name: str) -> dict[str, Any]:
        """Train, and predict the test rows."""
        system, seed = self._find(name)
        drawn = self.examples(seed)
        worker = Worker(f"classifiers.{system.module}", "Classifier", self.threads)
        worker.turn("warm_up", *zip(*drawn[: 2 * NUM_EXAMPLES], strict=True), system.settings)
        learned = worker.turn("learn", *zip(*drawn, strict=True), seed, system.settings)
        predicted = worker.turn("predict", [text for text, _ in self._test])
        worker.close()
        is_right = [label == found for (_, label), found in zip(self._test, predicted.result, strict=True)]
        return {
            "accuracy": statistics.mean(is_right),
            "seconds_to_learn": learned.seconds,
            "seconds_to_predict": predicted.seconds,
            "peak_bytes": learned.peak_bytes,
            "is_right": [int(right) for right in is_right],
        }

    def examples(self, seed: int) -> Rows:
        """NUM_EXAMPLES random rows of each class, in order of the classes."""
        draw = np.random.default_rng(seed)
        chosen = []
        for name in sorted(self._classes):
            places = [place for place, (_, label) in enumerate(self._train) if label == name]
            chosen += draw.choice(places, NUM_EXAMPLES, replace=False).tolist()
        return [self._train[place] for place in chosen]

    def gather(self) -> dict[str, Any]:
        """The figures of all runs, and the differences of the two systems on the same draws and test rows."""
        results = self.finished()
        found = {system.name: [results[f"{system.name}-seed-{seed}"] for seed in self._seeds] for system in SYSTEMS}
        right = {name: np.array([result.pop("is_right") for result in results]) for name, results in found.items()}
        gaps = right[OURS] - right[THEIRS]  # (draws, rows)
        difference = {
            "mean": float(gaps.mean()),
            "of_draws": gaps.mean(axis=1).tolist(),
            "interval_over_rows": list(bootstrap_interval(gaps.mean(axis=0))),
        }
        return {"num_classes": len(self._classes), "num_test_rows": len(self._test), "runs": found, "gain": difference}

    def _find(self, name: str) -> tuple[System, int]:
        system, _, seed = name.rpartition("-seed-")
        return next(one for one in SYSTEMS if one.name == system), int(seed)


def describe(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, results in found["runs"].items():
        shares = [100 * result["accuracy"] for result in results]
        seconds = [statistics.median(result[f"seconds_to_{what}"] for result in results) for what in _TIMES]
        each = ", ".join(f"{share:.1f}" for share in shares)
        rows.append([name, f"{statistics.mean(shares):.2f}", each, *(f"{second:.1f}" for second in seconds)])
    header = ["system", "accuracy", "of each draw", "seconds to learn", "to predict"]
    gain = found["gain"]
    low, high = (100 * end for end in gain["interval_over_rows"])
    return [
        f"Banking77, {NUM_EXAMPLES} examples of each of {found['num_classes']} classes, {found['num_test_rows']} test "
        "rows; all-MiniLM-L6-v2; the same examples for all systems of a draw.",
        "",
        report.markdown_table(header, *rows),
        "",
        f"{OURS} less {THEIRS}: {100 * gain['mean']:+.2f} points, 95 % interval over test rows {low:+.2f} to "
        f"{high:+.2f}, of each draw {', '.join(f'{100 * share:+.1f}' for share in gain['of_draws'])}.",
        "",
        "frozen: the vectors as published, and logistic regression. setfit: its published method, 20 iterations. "
        "accuracy: in percent. seconds: median of the draws.",
        "",
    ]


def _rows(split: str) -> Rows:
    path = texts.DATA / "banking77" / f"{split}.csv"
    if not path.is_file():
        raise RuntimeError(f"../shared/data/banking77/{split}.csv is not there")
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


if __name__ == "__main__":
    main()
