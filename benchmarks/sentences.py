"""Sentence encoders and cross-encoders: training quality and time, and re-ranking, beside sentence-transformers.

    python benchmarks/sentences.py [--list] [--only NAME] [--scale 1.0] [--threads 2] [--out FOLDER]

all-MiniLM-L6-v2 is trained on STS benchmark (CoSENT), on SICK's entailment labels (softmax over u, v, |u - v|) and on
questions of XQuAD with 30 % of the rows planted twice (in-batch): its score over three seeds, and apart from that the
seconds of some steps. 100 passages of some 60 tokens are re-ranked by a cross-encoder of MiniLM's shape. Each run takes
less than five minutes and leaves a file when it is finished, so that the same command goes on.
"""

import argparse
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import report
import sentence_data
from long_runs import LongRuns, add_options
from models import MINILM, published_folder
from sentence_systems import Settings
from worker import Worker

import bertkit

SYSTEMS = ("bertkit", "sentence_transformers")
DATA = {"sts": (sentence_data.sts, "cosent", "spearman"), "nli": (sentence_data.nli, "softmax", "spearman"),
        "duplicates": (sentence_data.duplicates, "in-batch", "ndcg_at_10")}  # fmt: skip
STEPS_TIMED = {"sts": 60, "nli": 60, "duplicates": 12}
NUM_PASSAGES, NUM_WORDS, ROUNDS = 100, 46, 5
QUERY = "Who gave Pip the money to become a gentleman in London?"


@dataclass(frozen=True)
class Run:
    """One training, its time alone, or the re-ranking of one system."""

    measured: str  # score, time or rerank
    data: str  # a key of DATA
    system: str
    settings: Settings

    @property
    def name(self) -> str:
        sampler = "-no-duplicates" if self.settings.no_duplicates else ""
        first = {"score": self.data, "time": f"time-{self.data}", "rerank": "rerank"}[self.measured]
        seed = f"-seed-{self.settings.seed}" if self.measured == "score" else ""
        return f"{first}-{self.system.replace('_', '-')}{sampler}-{self.settings.precision}{seed}"


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of the numbers of training rows."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("sentences", out, scale, threads)
        self._runs = {run.name: run for run in _all()}
        self._data = cache(lambda name: DATA[name][0](scale))

    def names(self) -> list[str]:
        return list(self._runs)

    def told(self, name: str) -> dict[str, Any]:
        run = self._runs[name]
        told = {"data": run.data, "system": run.system, "settings": asdict(run.settings)}
        return told if run.measured == "score" else told | {"measured": run.measured, "num_threads": self.threads}

    def is_timed(self, name: str) -> bool:
        return self._runs[name].measured != "score"

    def perform(self, name: str) -> dict[str, Any]:
        run = self._runs[name]
        worker = Worker(f"sentence_systems.{run.system}", "System", self.threads if self.is_timed(name) else 1)
        try:
            return {"score": self._score, "time": self._time, "rerank": self._rerank}[run.measured](run, worker)
        finally:
            worker.close()

    def _score(self, run: Run, worker: Worker) -> dict[str, Any]:
        data, test = self._data(run.data)
        metric = DATA[run.data][2]
        turn = worker.turn("train", published_folder(MINILM), data, run.settings)
        score = sentence_data.score(test, turn.result.vectors, metric)
        return {"num_train": len(data.rows), "metric": metric, "score": score}

    def _time(self, run: Run, worker: Worker) -> dict[str, Any]:
        data, _ = self._data(run.data)
        size = run.settings.batch_size
        data = replace(data, rows=data.rows[: STEPS_TIMED[run.data] * size], texts=data.texts[:32])
        worker.turn("train", published_folder(MINILM), replace(data, rows=data.rows[: 3 * size]), run.settings)
        worker.forget_peak()
        turn = worker.turn("train", published_folder(MINILM), data, run.settings)
        seconds = round(turn.result.seconds, 3)
        return {"num_train": len(data.rows), "metric": "seconds", "score": seconds, "peak_bytes": turn.peak_bytes}

    def _rerank(self, run: Run, worker: Worker) -> dict[str, Any]:
        texts = sentence_data.passages(NUM_PASSAGES, NUM_WORDS)
        with tempfile.TemporaryDirectory() as folder:
            cross_encoder(Path(folder, "model"))
            turn = worker.turn("rank", Path(folder, "model"), run.settings.precision, QUERY, texts, ROUNDS)
        seconds = sorted(turn.result.seconds)
        return {
            "num_pairs": len(texts), "metric": "milliseconds", "score": round(1000 * seconds[len(seconds) // 2], 1),
            "all_seconds": seconds,
            "order": np.argsort(-turn.result.scores, kind="stable").tolist(), "peak_bytes": turn.peak_bytes,
        }  # fmt: skip

    def summary(self, result: dict[str, Any]) -> str:
        return f"{result['score']:.4f} {result['metric']}"


def cross_encoder(folder: Path) -> None:
    """Write a cross-encoder of all-MiniLM-L6-v2 with a random head of one label."""
    model = bertkit.load(MINILM, heads=["sequence_classification"], new=["sequence_classification", "pooler"],
                         label_names=["score"], device="cpu")  # fmt: skip
    model.checkpoint.sentence = None
    model.checkpoint.score_activation = "Identity"
    model.mark_trained()
    model.save(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    results, options = report.begin("sentences", parser)
    try:
        runs = Runs(options.out, options.scale, options.threads)
        if runs.carry_out(options):
            found = runs.finished()
            report.finish(results | {"runs": found}, "\n".join(_lines(results, found)), options.out)
    except RuntimeError as error:
        raise SystemExit(f"sentences: {error}") from None


def _lines(results: dict, found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [*report.heading("Sentence encoders", results), "", "| run | result |", "|---|---|"]
    scores: dict[str, list[dict[str, Any]]] = {}
    for name, one in found.items():
        scores.setdefault(name.partition("-seed-")[0], []).append(one)
    for name, ones in scores.items():
        values = [one["score"] for one in ones]
        error = f" +- {np.std(values, ddof=1) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
        lines.append(f"| {name} | {np.mean(values):.4f}{error} {ones[0]['metric']} |")
    return [*lines, "", "Of several seeds the mean and its standard error."]


def _all() -> list[Run]:
    """In the order in which they are done: the systems after each other."""
    runs = []
    for precision in ("float32", "bfloat16"):
        runs += [Run("rerank", "", system, Settings("", precision)) for system in SYSTEMS]
    for data, (_, objective, _) in DATA.items():
        runs += [Run("time", data, *way) for way in _ways(data, Settings(objective))]
    for seed in (0, 1, 2):
        for data, (_, objective, _) in DATA.items():
            runs += [Run("score", data, *way) for way in _ways(data, Settings(objective, seed=seed))]
    return runs


def _ways(data: str, settings: Settings) -> list[tuple[str, Settings]]:
    ways = [(system, settings) for system in SYSTEMS]
    if data == "duplicates":
        ways.append((SYSTEMS[1], replace(settings, no_duplicates=True)))
    return ways if settings.seed else [*ways, (SYSTEMS[0], replace(settings, precision="bfloat16"))]


if __name__ == "__main__":
    main()
