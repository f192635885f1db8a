"""Quality after a fixed time: runs of both libraries, each with a separate process and result file.

Three short runs select the learning rate of transformers, on novels that the comparison does not use; the learning rate
of bertkit is that of its recipe. Then both libraries train with two seeds.
"""

import math
import shutil
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from long_runs import LongRuns
from pretrain_evaluation import LENGTHS
from pretrain_texts import prepare
from pretrainers import PUBLISHED
from turns import say
from worker import Worker

from bertkit.corpus.shards import read_manifest
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


class Quality(LongRuns):
    """All runs; ``scale`` is the factor of all times and of the size of evaluations.

    Args:
        work: folder of texts and models.
        out: folder of the results, a file for each run.

    Raises:
        RuntimeError: the novels are not on this machine.
    """

    def __init__(self, work: Path, out: Path, scale: float, threads: int) -> None:
        super().__init__("pretrain-quality", out, scale, threads)
        self._texts, self._models = prepare(work, SHAPE), work / f"quality-{scale:g}"
        self._models.mkdir(parents=True, exist_ok=True)

    def choosing(self) -> list[Run]:
        """The runs that select the learning rate of transformers."""
        minutes = CHOOSING_MINUTES * self.scale
        return [Run(f"rate-{rate:g}", "transformers", _published(rate, 0), minutes, "choose") for rate in RATES]

    def chosen_rate(self) -> float | None:
        """The learning rate with the lowest loss; None if not all runs are finished."""
        results = [self.result(run.name) for run in self.choosing()]
        if None in results:
            return None
        return min(zip(map(last_loss, results), RATES, strict=True))[1]

    def compared(self, system: str) -> list[Run]:
        """The long runs; none for transformers until its learning rate is selected."""
        rate, minutes = self.chosen_rate(), MINUTES * self.scale
        if system == "bertkit":
            settings = [_recipe(seed) for seed in SEEDS]
        else:
            settings = [_published(rate, seed) for seed in SEEDS] if rate is not None else []
        return [
            Run(_long_name(system, seed), system, of_seed, minutes, "decide")
            for seed, of_seed in zip(SEEDS, settings, strict=False)
        ]

    def names(self) -> list[str]:
        """As `LongRuns.names`."""
        choosing = [run.name for run in self.choosing()]
        return [*choosing, *(_long_name(system, seed) for seed in SEEDS for system in SYSTEMS)]

    def definition(self, name: str) -> dict[str, Any] | None:
        run, manifest = self._find(name), read_manifest(self._texts / "train")
        if run is None:
            return None
        assert manifest is not None
        texts = {fact: manifest[fact] for fact in ("num_tokens", "vocabulary_sha256")}
        return {**asdict(run), "num_threads": self.threads, "texts": texts}

    def summary(self, result: dict[str, Any]) -> str:
        return f"loss {last_loss(result):.4f}"

    def perform(self, name: str) -> dict[str, Any]:
        """Train for its time, then evaluate."""
        run = self._find(name)
        assert run is not None
        out = self._models / name
        shutil.rmtree(out, ignore_errors=True)  # of a run that was interrupted
        out.mkdir()
        result: dict[str, Any] = {}
        trainer = Worker(f"pretrainers.{run.system}", "Pretrainer", self.threads)
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
        return result

    def _evaluate(self, run: Run, result: dict[str, Any], out: Path) -> None:
        """Add the evaluation at the end, and for long runs at every saved point; remove all model folders but the
        last."""
        say(f"{run.name}: evaluation")
        shard, number = self._texts / run.text, max(20, round(NUM_SEQUENCES * self.scale))
        *early, last = result["points"]
        if run.text == "choose":
            result["points"] = [last]
        evaluator = Worker("pretrain_evaluation", "Evaluator", self.threads)
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
        for runs in (self.choosing, *(partial(self.compared, system) for system in SYSTEMS)):
            for run in runs():
                if run.name == name:
                    return run
        return None


def last_loss(result: dict[str, Any]) -> float:
    """The loss at the end of a run for the longest length; infinite if the run diverged."""
    loss = result["points"][-1]["losses"][str(LENGTHS[-1])]["loss"] if result["points"] else math.inf
    return loss if math.isfinite(loss) else math.inf


def _published(rate: float, seed: int) -> dict[str, Any]:
    return PUBLISHED | {"learning_rate": rate, "seed": seed}


def _recipe(seed: int) -> dict[str, Any]:
    recipe = with_length(read_recipe("cpu-minutes"), minutes=MINUTES)  # which decides the size
    facts = replace(recipe, training=replace(recipe.training, seed=seed)).facts()
    return {name: facts[name] for name in ("training", "model", "vocabulary", "data", "objective")}


def _long_name(system: str, seed: int) -> str:
    return f"{system}-seed-{seed}"
