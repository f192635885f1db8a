"""Sentence encoders and cross-encoders compared with sentence-transformers: quality and time of training, reranking.

    python benchmarks/sentences.py [--list] [--only PATTERN] [--scale 1.0] [--threads 2] [--out FOLDER]

all-MiniLM-L6-v2 is trained on STS benchmark (CoSENT), on SICK's entailment labels (softmax over u, v, |u - v|) and on
questions of XQuAD with 30 % of the rows duplicated on purpose (in-batch). A model that was pre-trained here
(`pretrained.py`) is trained on the first two. There are three seeds, and ten for the pre-trained model on SICK. A
cross-encoder of MiniLM's shape reranks 100 passages of about 60 tokens. Each run takes less than five minutes, with
``--scale 0.15``, which uses rows at equal distances, a tenth of that. Each finished run writes a file, so the same
command resumes.
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
from pretrained import pretrained_run
from sentence_systems import Settings
from worker import Worker

import bertkit

SYSTEMS = ("bertkit", "sentence_transformers")
DATA = {"sts": (sentence_data.sts, "cosent", "spearman"), "nli": (sentence_data.nli, "softmax", "spearman"),
        "duplicates": (sentence_data.duplicates, "in-batch", "ndcg_at_10")}  # fmt: skip
PRETRAINED = "pretrained"  # a start, besides MINILM; it needs a higher rate
NUM_PASSAGES, NUM_WORDS, ROUNDS = 100, 46, 5
QUERY = "Who gave Pip the money to become a gentleman in London?"


@dataclass(frozen=True)
class Run:
    """One training run, or reranking by one system."""

    data: str  # a key of DATA, or "rerank"
    system: str
    settings: Settings
    start: str = MINILM

    @property
    def name(self) -> str:
        sampler = "-no-duplicates" if self.settings.no_duplicates else ""
        start = "" if self.start == MINILM else f"{self.start}-"
        seed = "" if self.data == "rerank" else f"-seed-{self.settings.seed}"
        return f"{start}{self.data}-{self.system.replace('_', '-')}{sampler}-{self.settings.precision}{seed}"


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of the numbers of training rows."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("sentences", out, scale, threads)
        self._runs = {run.name: run for run in _all()}
        self._data = cache(lambda name: DATA[name][0](scale))
        self._workers: dict[str, Worker] = {}  # by system; each stays alive, and is warm for what it has done before
        self._warm: set[tuple[str, str, str, str]] = set()

    def names(self) -> list[str]:
        return list(self._runs)

    def definition(self, name: str) -> dict[str, Any]:
        run = self._runs[name]
        start = {} if run.data == "rerank" else {"start": run.start}
        return start | {
            "data": run.data, "system": run.system, "settings": asdict(run.settings), "num_threads": self.threads
        }  # fmt: skip

    def perform(self, name: str) -> dict[str, Any]:
        run = self._runs[name]
        if run.system not in self._workers:
            self._workers[run.system] = Worker(f"sentence_systems.{run.system}", "System", self.threads)
        worker = self._workers[run.system]
        return self._rerank(run, worker) if run.data == "rerank" else self._train(run, worker)

    def _train(self, run: Run, worker: Worker) -> dict[str, Any]:
        data, test = self._data(run.data)
        start = published_folder(MINILM) if run.start == MINILM else pretrained_run() / "model"
        kind = (run.system, run.start, run.data, run.settings.precision)
        if kind not in self._warm:
            some = replace(data, rows=data.rows[: 3 * run.settings.batch_size], texts=data.texts[:32])
            worker.turn("train", start, some, run.settings)
            self._warm.add(kind)
        worker.forget_peak()
        turn = worker.turn("train", start, data, run.settings)
        metric = DATA[run.data][2]
        return {
            "num_train": len(data.rows), "metric": metric, "peak_bytes": turn.peak_bytes,
            "seconds": round(turn.result.seconds, 3), "score": sentence_data.score(test, turn.result.vectors, metric),
        }  # fmt: skip

    def _rerank(self, run: Run, worker: Worker) -> dict[str, Any]:
        texts = sentence_data.passages(NUM_PASSAGES, NUM_WORDS)
        with tempfile.TemporaryDirectory() as folder:
            cross_encoder(Path(folder, "model"))
            turn = worker.turn("rank", Path(folder, "model"), run.settings.precision, QUERY, texts, ROUNDS)
        seconds = sorted(turn.result.seconds)
        return {
            "num_pairs": len(texts), "metric": "milliseconds", "score": round(1000 * seconds[len(seconds) // 2], 1),
            "seconds": seconds[len(seconds) // 2], "all_seconds": seconds,
            "order": np.argsort(-turn.result.scores, kind="stable").tolist(), "peak_bytes": turn.peak_bytes,
        }  # fmt: skip

    def summary(self, result: dict[str, Any]) -> str:
        return f"{result['metric']} {result['score']:.4f}, {result['seconds']:.2f} s"


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
    lines = [
        *report.heading("Sentence encoders", results, found.values()),
        "",
        "| run | score | seconds |",
        "|---|---|---|",
    ]
    alike: dict[str, list[dict[str, Any]]] = {}
    for name, one in found.items():
        alike.setdefault(name.partition("-seed-")[0], []).append(one)
    for name, ones in alike.items():
        values = [one["score"] for one in ones]
        error = f" +- {np.std(values, ddof=1) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
        seconds = np.mean([one["seconds"] for one in ones])
        lines.append(f"| {name} | {np.mean(values):.4f}{error} {ones[0]['metric']} | {seconds:.2f} |")
    return [*lines, "", "Of several seeds the mean and its standard error.", "", *_shares(alike)]


def _shares(alike: dict[str, list[dict[str, Any]]]) -> list[str]:
    """bertkit's seconds as a share of the seconds of sentence-transformers."""
    seconds = {name: float(np.mean([one["seconds"] for one in ones])) for name, ones in alike.items()}
    lines = ["| bertkit | share of its time at equal precision | of its time in float32 |", "|---|---|---|"]
    for name, taken in seconds.items():
        equal = seconds.get(name.replace("bertkit", SYSTEMS[1].replace("_", "-")))
        if "bertkit" in name and equal is not None:
            default = seconds[name.replace("bertkit", SYSTEMS[1].replace("_", "-")).replace("bfloat16", "float32")]
            lines.append(f"| {name} | {taken / equal:.2f} | {taken / default:.2f} |")
    return lines


def _all() -> list[Run]:
    """All runs in order of execution: the systems after each other."""
    runs = []
    for precision in ("float32", "bfloat16"):
        runs += [Run("rerank", system, Settings("", precision)) for system in SYSTEMS]
    runs.append(Run("rerank", SYSTEMS[0], Settings("", "int8")))
    for start in (MINILM, PRETRAINED):
        own = {} if start == MINILM else {"learning_rate": 2e-4}
        for data, (_, objective, _) in DATA.items():
            if (start, data) != (PRETRAINED, "duplicates"):  # it has not learned positions of whole paragraphs
                scattered = (start, data) == (PRETRAINED, "nli")  # its scores differ most between seeds
                for seed in range(10 if scattered else 3):
                    runs += [Run(data, *way, start) for way in _ways(data, Settings(objective, seed=seed, **own))]
    return runs


def _ways(data: str, settings: Settings) -> list[tuple[str, Settings]]:
    ways = [(system, settings) for system in SYSTEMS]
    if data == "duplicates":
        ways.append((SYSTEMS[1], replace(settings, no_duplicates=True)))
    if not settings.seed:
        ways += [(system, replace(settings, precision="bfloat16")) for system in SYSTEMS]
    return ways


if __name__ == "__main__":
    main()
