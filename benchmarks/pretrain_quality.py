"""Quality per minute: runs by the clock of both libraries, each in a process and with a result file of its own.

Three short runs choose transformers' learning rate, on novels that the comparison does not read; bertkit's is its
recipe's. Then each trains with two seeds. A run that has its result is not repeated, unless what it was told has
changed since.
"""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import report
from pretrain_evaluation import LENGTHS
from pretrain_texts import prepare
from pretrainers import PUBLISHED
from turns import say
from worker import Worker

from bertkit.corpus.shards import read_manifest
from bertkit.json_files import read_json, write_json
from bertkit.pretraining import read_recipe, with_length

SHAPE = "4 layers x 256"
MINUTES, CHOOSING_MINUTES = 20.0, 5.0
SEEDS = (0, 1)
SYSTEMS = ("bertkit", "transformers")
RATES = (2.5e-4, 5e-4, 1e-3)  # AdamW's peak in transformers, to choose from
NUM_SEQUENCES = 1_000  # of an evaluation
PAIRS_PER_PARADIGM = 500  # of 2,000


@dataclass(frozen=True)
class Run:
    """One training."""

    name: str
    system: str  # "bertkit" or "transformers"
    settings: dict[str, Any]
    minutes: float
    text: str  # the shard it is evaluated on, "choose" or "decide"


class Quality:
    """All runs at one ``scale``, the factor of all times and of the size of evaluations.

    Args:
        work: folder of texts and models.
        out: folder of the runs' results, a file each.

    Raises:
        RuntimeError: the novels are not on this machine.
    """

    def __init__(self, work: Path, out: Path, scale: float, threads: int) -> None:
        self.scale, self._threads = scale, threads
        self._texts = prepare(work, SHAPE)
        self._models, self._results = work / f"quality-{scale:g}", out / f"pretrain-quality-runs-{scale:g}"
        for folder in (self._models, self._results):
            folder.mkdir(parents=True, exist_ok=True)

    def choosing(self) -> list[Run]:
        """The runs that choose transformers' learning rate."""
        minutes = CHOOSING_MINUTES * self.scale
        return [Run(f"rate-{rate:g}", "transformers", _published(rate, 0), minutes, "choose") for rate in RATES]

    def chosen_rate(self) -> float | None:
        """The rate that led to the lowest loss; None: not all runs are finished."""
        losses = [self.last_loss(run) for run in self.choosing()]
        if None in losses:
            return None
        return min(zip(losses, RATES, strict=True))[1]

    def last_loss(self, run: Run) -> float | None:
        """At the end and the longest length; infinite where the run broke down, None: no result yet."""
        result = self.result(run)
        if result is None:
            return None
        loss = result["points"][-1]["losses"][str(LENGTHS[-1])]["loss"] if result["points"] else math.inf
        return loss if math.isfinite(loss) else math.inf

    def compared(self, system: str) -> list[Run]:
        """The long runs; none of transformers until its learning rate is chosen."""
        rate, minutes = self.chosen_rate(), MINUTES * self.scale
        if system == "bertkit":
            settings = [_recipe(seed) for seed in SEEDS]
        else:
            settings = [_published(rate, seed) for seed in SEEDS] if rate is not None else []
        return [
            Run(_long_name(system, seed), system, told, minutes, "decide")
            for seed, told in zip(SEEDS, settings, strict=False)
        ]

    def result(self, run: Run) -> dict[str, Any] | None:
        """What a run left, if it was told the same."""
        result = read_json(self._results / f"{run.name}.json")
        return result if result is not None and result["run"] == self._facts(run) else None

    def names(self) -> list[str]:
        """Of all runs, in the order in which they can be done."""
        choosing = [run.name for run in self.choosing()]
        return [*choosing, *(_long_name(system, seed) for seed in SEEDS for system in SYSTEMS)]

    def states(self) -> Iterator[str]:
        """A line for each run."""
        for name in self.names():
            run = self._find(name)
            if run is None:
                yield f"{name}: open, its learning rate is not chosen yet"
            elif (result := self.result(run)) is None:
                yield f"{name}: open, {run.minutes:g} minutes"
            else:
                yield f"{name}: finished {result['date']}, loss {self.last_loss(run):.4f}"

    def do(self, name: str) -> None:
        """Train and evaluate, unless that is done.

        Raises:
            RuntimeError: no such run, one whose learning rate is not chosen yet, or one that failed.
        """
        if name not in self.names():
            raise RuntimeError(f"no run {name!r}: expected one of {', '.join(self.names())}")
        run = self._find(name)
        if run is None:
            raise RuntimeError(f"{name}: its learning rate is not chosen yet; first finish the runs that choose it")
        if self.result(run) is not None:
            say(f"{name}: finished before")
            return
        say(f"{name}: {run.minutes:g} minutes of training")
        out = self._models / name
        shutil.rmtree(out, ignore_errors=True)  # of a run that was interrupted
        out.mkdir()
        result: dict[str, Any] = {"run": self._facts(run)} | report.circumstances(self._threads)
        trainer = Worker(f"pretrainers.{run.system}", "Pretrainer", self._threads)
        try:
            turn = trainer.turn("train", self._texts, run.settings, run.minutes, out)
            result |= turn.result | {"peak_bytes": turn.peak_bytes}
        except RuntimeError as error:
            if not str(error).startswith("TrainingError"):
                raise
            result |= {"points": [], "broke_down": str(error).partition("; ")[0]}  # no folders in results
        trainer.close()
        if result["points"]:
            self._evaluate(run, result, out)
        write_json(self._results / f"{name}.json", result)

    def _evaluate(self, run: Run, result: dict[str, Any], out: Path) -> None:
        """Add what the model knew at the end, of the long runs at every moment; all folders but the last go."""
        say(f"{run.name}: evaluation")
        shard, number = self._texts / run.text, max(20, round(NUM_SEQUENCES * self.scale))
        *early, last = result["points"]
        if run.text == "choose":
            result["points"] = [last]
        evaluator = Worker("pretrain_evaluation", "Evaluator", self._threads)
        for point in result["points"]:
            point["losses"] = evaluator.turn("losses", out / point["folder"], shard, number).result
        if run.system == "transformers":
            loss = evaluator.turn("loss_by_transformers", out / last["folder"], shard, number).result
            result["loss_by_transformers"] = loss
        if run.text == "decide":
            limit = max(10, round(PAIRS_PER_PARADIGM * self.scale))
            result["minimal_pairs"] = evaluator.turn("minimal_pairs", out / last["folder"], limit).result
        evaluator.close()
        for point in early:
            shutil.rmtree(out / point["folder"])
        for point in early if run.text == "decide" else [last]:
            for losses in point["losses"].values():
                del losses["by_sequence"]  # only what is compared needs it

    def _find(self, name: str) -> Run | None:
        runs = [*self.choosing(), *(run for system in SYSTEMS for run in self.compared(system))]
        return next((run for run in runs if run.name == name), None)

    def _facts(self, run: Run) -> dict[str, Any]:
        """All that a run was told, as JSON has it."""
        manifest = read_manifest(self._texts / "train")
        assert manifest is not None
        texts = {name: manifest[name] for name in ("num_tokens", "vocabulary_sha256")}
        return json.loads(json.dumps({**asdict(run), "num_threads": self._threads, "texts": texts}))


def _published(rate: float, seed: int) -> dict[str, Any]:
    return PUBLISHED | {"learning_rate": rate, "seed": seed}


def _recipe(seed: int) -> dict[str, Any]:
    recipe = with_length(read_recipe("cpu-minutes"), minutes=MINUTES)  # which decides the size
    facts = replace(recipe, training=replace(recipe.training, seed=seed)).facts()
    return {name: facts[name] for name in ("training", "model", "vocabulary", "data")}


def _long_name(system: str, seed: int) -> str:
    return f"{system}-seed-{seed}"
