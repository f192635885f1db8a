"""The default settings of fine-tuning, from a fitted head, compared with frozen features, TF-IDF and transformers'
Trainer.

    python benchmarks/default_settings.py [--list] [--only PATTERN] [--scale 1.0] [--threads 1] [--out FOLDER]

all-MiniLM-L6-v2 and a small model pre-trained here (`pretrained.py`) are fine-tuned in bfloat16 on data sets of texts
and pairs, with several numbers of rows, learning rates and seeds; the seed draws the training rows. Each finished run
writes a file of results, so the same command resumes. The table shows the finished runs.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from pretrained import pretrained_run

from bertkit import load
from bertkit.evidence.baseline import predict_baseline
from bertkit.finetuning import Finetuning, FinetuningSettings, default_settings
from bertkit.tasks import SequenceClassification, TokenClassification, read_examples, task_kind
from bertkit.tasks.reading import BadRows
from bertkit.transformer.kernels.linear import has_bfloat16

SIZES, SEEDS, MAX_TEST = (100, 300, 1_000), (0, 1, 2), 1_000
LARGER_SIZES = {"banking77": (150, 3_000, 10_003), "mrpc": (3_576,), "tweets": (27_480,), "sst2": (67_349,)}
"""Further numbers of rows; the last number of each data set is that of all rows."""
PRETRAINED = "pretrained"
PRETRAINED_SIZES = (300, 1_000)
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
"""Settings by name; those not given are the defaults, and 1e-4 with 3 epochs is all defaults."""

TF_IDF = "tf-idf"
TRAINER: dict[str, dict[str, Any]] = {
    "trainer": {"learning_rate": 5e-5, "num_epochs": 3, "batch_size": 8, "warmup": 0.0, "weight_decay": 0.0},
    "trainer-1e-4": {"learning_rate": 1e-4, "num_epochs": 3},
}
"""Settings of transformers' Trainer: its defaults, and bertkit's learning rate, epochs and batch size. In bfloat16 as
bertkit, or in float32 if the processor lacks bfloat16 instructions."""

DEFAULTS = {MINILM: "1e-4", PRETRAINED: "3e-4"}
"""The default settings for the width of each model."""

COMPARED = {
    MINILM: (FROZEN, "1e-4", *TRAINER, TF_IDF),
    PRETRAINED: (FROZEN, "1e-4", "3e-4", *TRAINER, TF_IDF),
}
"""The settings measured for larger numbers of rows, and for the pre-trained model."""

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
        if options.list:
            return
        results["runs"] = runs.gather()
        title = report.heading("Default settings", results, results["runs"].values())
        report.finish(results, "\n".join([*title, *describe(results["runs"])]), options.out)
    except RuntimeError as error:
        raise SystemExit(f"default_settings: {error}") from None


@dataclass(frozen=True)
class Run:
    """One run of the benchmark."""

    data: str
    size: int
    settings: str
    seed: int
    model: str = MINILM

    @property
    def name(self) -> str:
        prefix = "" if self.model == MINILM else f"{self.model}-"
        return f"{prefix}{self.data}-{self.size}-{self.settings}-seed-{self.seed}"


def all_runs() -> list[Run]:
    """All runs: small numbers of rows first, and the first seed before the others."""
    small = [(MINILM, data, size, seed) for size in SIZES for seed in SEEDS for data in DATA]
    larger = [(MINILM, data, size, seed) for seed in SEEDS for data, sizes in LARGER_SIZES.items() for size in sizes]
    pretrained = [
        (PRETRAINED, data, size, seed) for seed in SEEDS for size in PRETRAINED_SIZES for data, task in DATA.items()
        if task.settings.kind != "question-answering"  # a head that its architecture lacks
    ]  # fmt: skip
    small.sort(key=lambda of: of[2] * (1 + of[3]))
    runs = [
        Run(data, size, settings, seed, model)
        for model, data, size, seed in (*small, *larger, *pretrained)
        for settings in ((*SETTINGS, *TRAINER, TF_IDF) if model == MINILM and size in SIZES else COMPARED[model])
    ]
    return [run for run in runs if run.settings != TF_IDF or DATA[run.data].settings.kind in _OF_TEXTS]


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of the numbers of examples."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("default-settings", out, scale, threads)
        self.runs = {run.name: run for run in all_runs()}

    def names(self) -> list[str]:
        return list(self.runs)

    def is_timed(self, name: str) -> bool:
        return False

    def definition(self, name: str) -> dict[str, Any]:
        run = self.runs[name]
        chosen = None if run.settings in (*TRAINER, TF_IDF) else self._settings(run)
        varied = TRAINER.get(run.settings, {}) if chosen is None else {part: getattr(chosen, part) for part in _VARIED}
        facts = {"data": run.data, "rows": run.size, "name": run.settings, **varied, "seed": run.seed}
        return facts | {"most_test": MAX_TEST} | ({} if run.model == MINILM else {"model": run.model})

    def summary(self, result: dict[str, Any]) -> str:
        return f"{result['metric']} {result['score']:.4f}, {result['seconds']:.0f} s"

    def perform(self, name: str) -> dict[str, Any]:
        """Fine-tune or fit the head alone, and score predictions of the test examples."""
        one = self.runs[name]
        task, kind = DATA[one.data], task_kind(DATA[one.data].settings.kind)
        sizes = round(one.size * self.scale), round(MAX_TEST * self.scale)
        train, test = draw_examples(one.data, one.seed, *sizes)
        start, processor_start = time.perf_counter(), time.process_time()
        if one.settings == TF_IDF:
            predictions = _by_tf_idf(kind.of_examples(train, {}), train, test)
        elif one.settings in TRAINER:
            precision = "bfloat16" if has_bfloat16() else "float32"  # emulated it takes nine times as long
            settings = replace(
                task.settings, max_length=128, precision=precision, seed=one.seed, **TRAINER[one.settings]
            )
            predictions = transformers.Finetuner(1).finetune(_folder(one), train, test, settings)["predictions"]
        else:
            predictions = [plain(prediction) for prediction in self._by_bertkit(one, kind.name, train, test)]
        return {
            "num_train": len(train),
            "num_test": len(test),
            "metric": task.metric,
            "score": score(task, train, test, predictions)[task.metric],
            "seconds": round(time.perf_counter() - start, 1),
            "processor_seconds": round(time.process_time() - processor_start, 1),
        }

    def _by_bertkit(self, one: Run, kind: str, train: Examples, test: Examples) -> Sequence[Any]:
        longest = DATA[one.data].settings.max_answer_length
        with tempfile.TemporaryDirectory() as folder:
            run = Finetuning(
                Path(folder) / "model", _folder(one), kind, self._settings(one),
                {} if longest is None else {"max_answer_length": longest}, device="cpu",
                log_line=lambda line: None, resumable=False,
            )  # fmt: skip
            if one.settings == FROZEN:
                if kind == TokenClassification.name:  # whose tags need not be known to the model: they are not read
                    known = train[0].tags[0]
                    test = [replace(example, tags=(known,) * len(example.tags)) for example in test]
                return run.frozen(train, test).predictions
            run.start(train)
            return load(run.out, precision="bfloat16", device="cpu").predict(test)

    def gather(self) -> dict[str, dict[str, Any]]:
        """The results of the finished runs by name."""
        return {name: result for name in self.names() if (result := self.result(name)) is not None}

    def _settings(self, run: Run) -> FinetuningSettings:
        given = {"max_length": 128, "precision": "bfloat16", "seed": run.seed, **SETTINGS[run.settings]}
        return FinetuningSettings.of(**given).completed(default_settings(384, -(-round(run.size * self.scale) // 32)))


_read = cache(lambda name: DATA[name].read(DATA[name]))


def draw_examples(name: str, seed: int, num_train: int, num_test: int) -> tuple[Examples, Examples]:
    """Random training rows of a data set, without labels that have too few, and test rows with the other labels."""
    train, test = _read(name)
    kind: Any = task_kind(DATA[name].settings.kind)
    test = texts.shuffled(test)[:num_test]
    train = [train[index] for index in np.random.default_rng(seed).permutation(len(train))[:num_train].tolist()]
    while unusable := {id(example) for example, _ in kind.unusable_examples(train)}:
        train = [example for example in train if id(example) not in unusable]
    if kind is SequenceClassification:
        labels = {example.label for example in train}
        test = [example for example in test if example.label in labels]
    return train, test


def _folder(run: Run) -> Path:
    return published_folder(MINILM) if run.model == MINILM else pretrained_run() / "model"


def _by_tf_idf(task: Any, train: Examples, test: Examples) -> Sequence[Any]:
    """Predictions of the baseline of the evidence report."""
    predicted = predict_baseline(task, train, test)
    return predicted.tolist() if task.name == "regression" else [task.label_names[number] for number in predicted]


def describe(runs: dict[str, dict[str, Any]]) -> list[str]:
    """A row for each model, data set and number of rows: frozen features, and the gain of each setting over them."""
    tried = [name for name in (*SETTINGS, *TRAINER, TF_IDF) if any(run["run"]["name"] == name for run in runs.values())]
    rows = []
    for model, data, size in dict.fromkeys(
        (run.model, run.data, run.size) for run in sorted(all_runs(), key=_in_table)
    ):
        scores = {
            name: {
                seed: runs[key]["score"] for seed in SEEDS if (key := Run(data, size, name, seed, model).name) in runs
            }
            for name in tried
        }
        if scores.get(FROZEN):
            cells = [_gain(scores[name], scores[FROZEN]) for name in tried if name != FROZEN]
            frozen = f"{100 * statistics.mean(scores[FROZEN].values()):.1f}"
            rows.append([data, model, f"{size}", f"{len(scores[FROZEN])}", frozen, *cells])
    header = ["data", "model", "rows", "seeds", FROZEN, *(name for name in tried if name != FROZEN)]
    return [
        report.markdown_table(header, *rows),
        "",
        f"Batches of 32, bfloat16, scores in hundredths on at most {MAX_TEST:,} test examples, none "
        "of which chose anything: accuracy, of mrpc and wnut17 F1, of stsb Spearman, of tweet-spans Jaccard. frozen: a "
        "head fitted to the frozen encoder. Then the gain of each setting over it, the mean over seeds and its "
        "standard error: learning rate with 3 epochs unless named otherwise, with layer-wise decay, with "
        "another rate of the head, or with a head drawn at random and 10 epochs. trainer: transformers' Trainer at its "
        "defaults (5e-5, 3 epochs, batches of 8), trainer-1e-4: at bertkit's rate and batches. tf-idf: TF-IDF of words "
        "and pairs of words with a linear support vector machine or ridge regression. pretrained: a model of 4 layers "
        "of 256, pre-trained on novels for 150 steps. Rows of banking77 include those of labels with one row, which "
        "are left out.",
        "",
        *_pooled(runs),
    ]


def _in_table(run: Run) -> tuple[bool, int, int]:
    return run.model != MINILM, list(DATA).index(run.data), run.size


def _pooled(runs: dict[str, dict[str, Any]]) -> list[str]:
    """Mean differences of two settings over the data sets, numbers of rows and seeds measured for both."""
    lines = []
    for model in (MINILM, PRETRAINED):
        for other, left_out in ((FROZEN, ()), (TF_IDF, ()), *((name, ("stsb", "wnut17")) for name in TRAINER)):
            gains = [
                100 * (runs[run.name]["score"] - runs[key]["score"])
                for run in all_runs()
                if run.model == model and run.settings == DEFAULTS[model]
                and run.data not in left_out and run.name in runs
                and (key := replace(run, settings=other).name) in runs
            ]  # fmt: skip
            if len(gains) > 1:
                error = statistics.stdev(gains) / math.sqrt(len(gains))
                lines.append(
                    f"- {model}: defaults less {other}{' without stsb and wnut17' if left_out else ''}: "
                    f"{statistics.mean(gains):+.1f} ± {error:.1f}, worst {min(gains):+.1f}, {len(gains)} pairs of runs"
                )
    return lines


def _gain(scores: dict[int, float], frozen: dict[int, float]) -> str:
    gains = [100 * (score - frozen[seed]) for seed, score in scores.items() if seed in frozen]
    if not gains:
        return ""
    error = f" ± {statistics.stdev(gains) / math.sqrt(len(gains)):.1f}" if len(gains) > 1 else ""
    return f"{statistics.mean(gains):+.1f}{error}"


if __name__ == "__main__":
    main()
