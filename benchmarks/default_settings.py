"""The default settings, measured: fine-tuning from a fitted head compared with frozen features, with TF-IDF, and with
transformers' Trainer.

    python benchmarks/default_settings.py [--list] [--only NAME] [--scale 1.0] [--threads 1] [--out FOLDER]

The real all-MiniLM-L6-v2 in bfloat16 on data sets of texts and pairs at several numbers of rows, learning rates and
seeds, which draw the training rows. Each run leaves a file of results when it is finished, so that the same command
continues. The table is of the runs that are finished.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import report
import texts
import torch
from finetune_tasks import TASKS, Examples, Task, score
from finetuners import Settings, transformers
from finetuners.bertkit import plain
from long_runs import LongRuns, add_options
from models import MINILM, published_folder

from bertkit import load
from bertkit.evidence.baseline import predict_plainly
from bertkit.finetuning import Finetuning, FinetuningSettings, default_settings
from bertkit.tasks import SequenceClassification, read_examples, task_kind
from bertkit.tasks.reading import BadRows

SIZES, SEEDS, MAX_TEST = (100, 300, 1_000), (0, 1, 2), 1_000
FROZEN = "frozen"
SETTINGS: dict[str, dict[str, Any]] = {
    FROZEN: {},
    "1e-4": {"learning_rate": 1e-4, "num_epochs": 3},
    "3e-4": {"learning_rate": 3e-4, "num_epochs": 3},
    "3e-5": {"learning_rate": 3e-5, "num_epochs": 3},
    "1e-4-10-epochs": {"learning_rate": 1e-4, "num_epochs": 10},
    "1e-4-decay-0.8": {"learning_rate": 1e-4, "num_epochs": 3, "layer_decay": 0.8},
    "1e-4-head-1e-3": {"learning_rate": 1e-4, "num_epochs": 3, "head_learning_rate": 1e-3},
    "5e-4-10-epochs": {"learning_rate": 5e-4, "num_epochs": 10},
    "drawn-5e-4": {"learning_rate": 5e-4, "num_epochs": 10, "head": "drawn"},
}
"""By name; what is not given is the default, and 1e-4 with 3 epochs all of it."""

TF_IDF = "tf-idf"
TRAINER: dict[str, dict[str, Any]] = {
    "trainer": {"learning_rate": 5e-5, "num_epochs": 3, "batch_size": 8, "warmup": 0.0, "weight_decay": 0.0},
    "trainer-1e-4": {"learning_rate": 1e-4, "num_epochs": 3},
}
"""transformers' Trainer: its defaults, and bertkit's rate, epochs and batches. Both as bertkit in bfloat16."""

_OF_TEXTS = ("sequence-classification", "regression")
_VARIED = ("head", "learning_rate", "num_epochs", "layer_decay", "head_learning_rate")


def _banking(task: Task) -> tuple[Examples, Examples]:
    columns = {"label": "category"}
    train, test = (
        list(read_examples(task.settings.kind, texts.open_data(f"banking77/{part}.csv"), columns=columns,
                           bad_rows=BadRows(skip=True)))
        for part in ("train", "test")
    )  # fmt: skip
    return train, test


DATA = {
    "banking77": Task("banking77", _banking, 0, "accuracy", Settings("sequence-classification", 0, 0.0, 128)),
    **{task.name: task for task in TASKS if task.name != "xquad"},  # which has fewer rows
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    results, options = report.begin("default-settings", parser)
    torch.set_num_threads(1)
    try:
        runs = Runs(options.out, options.scale, options.threads)
        runs.carry_out(options)
        results["runs"] = runs.gather()
        title = report.heading("Default settings", results)
        report.finish(results, "\n".join([*title, *describe(results["runs"])]), options.out)
    except RuntimeError as error:
        raise SystemExit(f"default_settings: {error}") from None


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of the numbers of examples."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("default-settings", out, scale, threads)
        self._read = cache(lambda name: DATA[name].read(DATA[name]))

    def names(self) -> list[str]:
        """Few rows and the first seed first."""
        ordered = [(size, seed) for size in SIZES for seed in SEEDS]
        return [
            f"{name}-{size}-{settings}-seed-{seed}"
            for size, seed in sorted(ordered, key=lambda one: one[0] * (1 + one[1]))
            for name in DATA
            for settings in (*SETTINGS, *TRAINER, TF_IDF)
            if settings != TF_IDF or DATA[name].settings.kind in _OF_TEXTS
        ]

    def is_timed(self, name: str) -> bool:
        return False

    def told(self, name: str) -> dict[str, Any]:
        data, size, settings, seed = self._parts(name)
        chosen = None if settings in (*TRAINER, TF_IDF) else self._settings(name)
        varied = TRAINER.get(settings, {}) if chosen is None else {part: getattr(chosen, part) for part in _VARIED}
        return {"data": data, "rows": size, "name": settings, **varied, "seed": seed, "most_test": MAX_TEST}

    def summary(self, result: dict[str, Any]) -> str:
        return f"{result['metric']} {result['score']:.4f}, {result['seconds']:.0f} s"

    def perform(self, name: str) -> dict[str, Any]:
        """Fine-tune or fit the head alone, and score predictions of the test examples."""
        data, size, settings, seed = self._parts(name)
        task, (train, test) = DATA[data], self._read(data)
        test = texts.shuffled(test)[: round(MAX_TEST * self.scale)]
        draw = np.random.default_rng(seed).permutation(len(train))[: round(size * self.scale)]
        train = [train[index] for index in draw.tolist()]
        kind: Any = task_kind(task.settings.kind)
        while unusable := {id(example) for example, _ in kind.unusable_examples(train)}:
            train = [example for example in train if id(example) not in unusable]
        if kind is SequenceClassification:
            labels = {example.label for example in train}
            test = [example for example in test if example.label in labels]
        start = time.perf_counter()
        if settings == TF_IDF:
            predictions = _by_tf_idf(kind.of_examples(train, {}), train, test)
        elif settings in TRAINER:
            told = replace(task.settings, max_length=128, precision="bfloat16", seed=seed, **TRAINER[settings])
            trained = transformers.Finetuner(1).finetune(published_folder(MINILM), train, test, told)
            predictions = trained["predictions"]
        else:
            predictions = [plain(one) for one in self._by_bertkit(name, kind.name, train, test)]
        return {
            "num_train": len(train),
            "num_test": len(test),
            "metric": task.metric,
            "score": score(task, train, test, predictions)[task.metric],
            "seconds": round(time.perf_counter() - start, 1),
        }

    def _by_bertkit(self, name: str, kind: str, train: Examples, test: Examples) -> Sequence[Any]:
        data, _, settings, _ = self._parts(name)
        longest = DATA[data].settings.max_answer_length
        with tempfile.TemporaryDirectory() as folder:
            run = Finetuning(
                Path(folder) / "model", published_folder(MINILM), kind, self._settings(name),
                {} if longest is None else {"max_answer_length": longest}, device="cpu",
                log_line=lambda line: None, resumable=False,
            )  # fmt: skip
            if settings == FROZEN:
                return run.frozen(train, test).predictions
            run.start(train)
            return load(run.out, precision="bfloat16", device="cpu").predict(test)

    def gather(self) -> dict[str, dict[str, Any]]:
        """The results of all runs that are finished, by their names."""
        return {name: result for name in self.names() if (result := self.result(name)) is not None}

    def _settings(self, name: str) -> FinetuningSettings:
        _, size, settings, seed = self._parts(name)
        given = {"max_length": 128, "precision": "bfloat16", "seed": seed, **SETTINGS[settings]}
        return FinetuningSettings(**given).completed(default_settings(384, -(-round(size * self.scale) // 32)))

    def _parts(self, name: str) -> tuple[str, int, str, int]:
        data = next(data for data in DATA if name.startswith(f"{data}-"))
        size, _, rest = name.removeprefix(f"{data}-").partition("-")
        settings, _, seed = rest.rpartition("-seed-")
        return data, int(size), settings, int(seed)


def _by_tf_idf(task: Any, train: Examples, test: Examples) -> Sequence[Any]:
    """Predictions of the baseline of the evidence report."""
    predicted = predict_plainly(task, train, test)
    return predicted.tolist() if task.name == "regression" else [task.label_names[number] for number in predicted]


def describe(runs: dict[str, dict[str, Any]]) -> list[str]:
    """A row for each data set and number of rows: frozen features, and what each setting adds, over the seeds."""
    tried = [name for name in (*SETTINGS, *TRAINER, TF_IDF) if any(run["run"]["name"] == name for run in runs.values())]
    rows = []
    for data in DATA:
        for size in SIZES:
            scores = {
                name: [runs[key]["score"] for seed in SEEDS if (key := f"{data}-{size}-{name}-seed-{seed}") in runs]
                for name in tried
            }
            if scores.get(FROZEN):
                cells = [_gain(scores[name], scores[FROZEN]) for name in tried if name != FROZEN]
                frozen = f"{100 * statistics.mean(scores[FROZEN]):.1f}"
                rows.append([data, f"{size}", f"{len(scores[FROZEN])}", frozen, *cells])
    header = ["data", "rows", "seeds", FROZEN, *(name for name in tried if name != FROZEN)]
    return [
        report.markdown_table(header, *rows),
        "",
        f"all-MiniLM-L6-v2, batches of 32, bfloat16, scores in hundredths on at most {MAX_TEST:,} test examples, none "
        "of which chose anything: accuracy, of mrpc and wnut17 F1, of stsb Spearman, of tweet-spans Jaccard. frozen: a "
        "head fitted to the frozen encoder. Then the gain of each setting over it, the mean over seeds and its "
        "standard error: learning rate with 3 epochs unless named otherwise, with layer-wise decay, with "
        "another rate of the head, or with a head drawn at random and 10 epochs. trainer: transformers' Trainer at its "
        "defaults (5e-5, 3 epochs, batches of 8), trainer-1e-4: at bertkit's rate and batches. tf-idf: TF-IDF of words "
        "and pairs of words with logistic or ridge regression.",
        "",
    ]


def _gain(scores: list[float], frozen: list[float]) -> str:
    gains = [100 * (one - other) for one, other in zip(scores, frozen, strict=False)]
    if not gains:
        return ""
    error = f" ± {statistics.stdev(gains) / math.sqrt(len(gains)):.1f}" if len(gains) > 1 else ""
    return f"{statistics.mean(gains):+.1f}{error}"


if __name__ == "__main__":
    main()
