"""The default learning rate and number of epochs, measured: fine-tuning with them beside frozen features.

    python benchmarks/default_settings.py [--list] [--only NAME] [--scale 1.0] [--threads 2] [--out FOLDER]

The real all-MiniLM-L6-v2 on eleven data sets with at most 1,500 examples each, in bfloat16, one seed; on Banking77 also
other rates and numbers of epochs. Each run leaves a file of results when it is finished, so that the same command goes
on; the table is of the runs that are finished.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import report
import texts
import torch
from finetune_tasks import MAX_TEST, TASKS, Examples, Task, score
from finetuners import Settings
from long_runs import LongRuns, add_options
from models import MINILM, published_folder
from worker import Worker

from bertkit import load
from bertkit.finetuning import baselines_of, default_settings
from bertkit.finetuning.baselines import FROZEN
from bertkit.tasks import Regression, read_examples, task_kind
from bertkit.tasks.reading import BadRows
from bertkit.tokenizer.layout import Layout

MOST_EXAMPLES = 1_500
OTHERS = ((2e-5, 3), (1e-4, 11), (3e-4, 11), (1e-3, 5), (1e-3, 11))  # learning rate and epochs, on Banking77
_SICK = ("sick2014/SICK_train.txt", "sick2014/SICK_test_annotated.txt")


def _files(train: str, test: str, label: str) -> Callable[[Task], tuple[Examples, Examples]]:
    """Reads two files of ``../shared/data`` whose labels are in a column of that name."""
    return lambda task: (_read(task, train, {"label": label}), _read(task, test, {"label": label}))


def _parts(file: str) -> Callable[[Task], tuple[Examples, Examples]]:
    """Reads one file, of which a random fifth is to test."""

    def read(task: Task) -> tuple[Examples, Examples]:
        examples = texts.shuffled(_read(task, file, {}))
        end = len(examples) * 4 // 5
        return examples[:end], examples[end:]

    return read


def _read(task: Task, file: str, columns: dict[str, str]) -> Examples:
    path = texts.open_data(file)
    return list(read_examples(task.settings.kind, path, columns=columns, bad_rows=BadRows(skip=True)))


def _task(name: str, kind: str, metric: str, read: Callable[[Task], tuple[Examples, Examples]]) -> Task:
    return Task(name, read, MOST_EXAMPLES, metric, Settings(kind, 0, 0.0, max_length=128))


_WITH_FEATURES = ("sequence-classification", "regression", "token-classification")
CHOSEN = {
    task.name: task
    for task in (
        _task("banking77", "sequence-classification", "accuracy",
              _files("banking77/train.csv", "banking77/test.csv", "category")),
        *(task for task in TASKS if task.settings.kind in _WITH_FEATURES),
        _task("rte", "sequence-classification", "accuracy", _parts("rte_derived/train_rte123_minus_val.jsonl")),
        _task("sick", "sequence-classification", "accuracy", _files(*_SICK, "entailment_judgment")),
        _task("sick-relatedness", "regression", "spearman", _files(*_SICK, "relatedness_score")),
        _task("wikigold", "token-classification", "f1", _parts("ner_wikigold/CONLL-format/data/wikigold.conll.txt")),
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    results, options = report.begin("default-settings", parser)
    torch.set_num_threads(1)
    try:
        runs = Runs(options.out, options.scale, options.threads)
        if runs.carry_out(options):
            results["runs"] = runs.gather()
            title = report.heading("Default settings", results)
            report.finish(results, "\n".join([*title, *describe(results["runs"])]), options.out)
    except RuntimeError as error:
        raise SystemExit(f"default_settings: {error}") from None


class Runs(LongRuns):
    """All runs; ``scale`` is the factor of the numbers of examples."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("default-settings", out, scale, threads)
        self._examples = cache(lambda name: _few(CHOSEN[name]).examples(scale))
        self._others = {f"banking77-{rate:g}-{epochs}": (rate, epochs) for rate, epochs in OTHERS}

    def names(self) -> list[str]:
        return [*CHOSEN, *self._others]

    def is_timed(self, name: str) -> bool:
        return False

    def told(self, name: str) -> dict[str, Any]:
        return {"task": self._task_of(name).name, "settings": asdict(self._settings(name)), "most_test": MAX_TEST}

    def summary(self, result: dict[str, Any]) -> str:
        return f"{result['metric']} {result['score']:.4f}, {result['baselines']}"

    def perform(self, name: str) -> dict[str, Any]:
        """Fine-tune, predict the test examples, and measure there what is reached without fine-tuning."""
        task, settings = self._task_of(name), self._settings(name)
        train, test = self._examples(task.name)
        worker = Worker("finetuners.bertkit", "Finetuner", 1)
        found = worker.turn("finetune", published_folder(MINILM), train, test, settings).result
        worker.close()
        return {
            "num_train": len(train),
            "num_test": len(test),
            "metric": task.metric,
            "score": score(task, train, test, found["predictions"])[task.metric],
            "baselines": _baselines(task, settings, train, test),
        }

    def gather(self) -> dict[str, dict[str, Any]]:
        """The results of all runs that are finished, by their names."""
        return {name: result for name in self.names() if (result := self.result(name)) is not None}

    def _task_of(self, name: str) -> Task:
        return CHOSEN["banking77" if name in self._others else name]

    def _settings(self, name: str) -> Settings:
        task = self._task_of(name)
        train, _ = self._examples(task.name)
        usual = default_settings(384, -(-len(train) // task.settings.batch_size))
        rate, epochs = self._others.get(name, (usual["learning_rate"], usual["num_epochs"]))
        return replace(task.settings, learning_rate=rate, num_epochs=epochs, precision="bfloat16")


def _few(task: Task) -> Task:
    return replace(task, num_train=min(task.num_train, MOST_EXAMPLES))


def _baselines(task: Task, settings: Settings, train: Examples, test: Examples) -> dict[str, float]:
    """By the metric of the task."""
    kind = task_kind(settings.kind)
    shown = Regression() if kind is Regression else kind.of_examples(train, {})
    model = load(MINILM, heads=(), precision="bfloat16", device="cpu")
    layout = Layout(settings.max_length, kind.on_long)
    return baselines_of(shown, layout, train, test, task.metric, frozen=lambda: model, tokenizer=model.tokenizer)


def describe(runs: dict[str, dict[str, Any]]) -> list[str]:
    rows = []
    for found in runs.values():
        settings, constant = found["run"]["settings"], next(iter(found["baselines"].values()))
        steps = settings["num_epochs"] * -(-found["num_train"] // settings["batch_size"])
        shares = (constant, found["baselines"][FROZEN], found["score"], found["score"] - found["baselines"][FROZEN])
        rows.append([
            f"{found['run']['task']}, {found['metric']}", f"{found['num_train']}", f"{settings['learning_rate']:g}",
            f"{settings['num_epochs']}", f"{steps}", *(f"{100 * share:.1f}" for share in shares),
        ])  # fmt: skip
    header = ["task", "examples", "rate", "epochs", "steps", "constant", "frozen", "fine-tuned", "gain"]
    not_run = [name for name in CHOSEN if name not in runs]
    return [
        report.markdown_table(header, *rows),
        "",
        f"all-MiniLM-L6-v2, batches of 32, bfloat16, one seed, scores in hundredths on at most {MAX_TEST:,} test "
        "examples, none of which chose anything. constant: the most frequent label, or the mean. frozen: features of "
        "the encoder as published, with logistic regression or ridge regression.",
        *(["", f"Not run: {', '.join(not_run)}."] if not_run else []),
        "",
    ]


if __name__ == "__main__":
    main()
