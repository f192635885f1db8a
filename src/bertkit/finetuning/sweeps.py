"""Hyperparameter sweep: train with several settings, keep the best model on the dev examples."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, UsageError
from bertkit.files.json_files import numbers, read_json, write_json
from bertkit.finetuning.baselines import comparison, goodness
from bertkit.finetuning.best_run import write_best
from bertkit.finetuning.prepared_rows import prepared_rows
from bertkit.finetuning.run import GRID, Finetuning
from bertkit.finetuning.settings import HEAD_SETTINGS
from bertkit.model import load
from bertkit.tasks import task_kind
from bertkit.training import Outcome, claim_run_folder, released_if_refused, search

SWEEPS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    # Devlin et al. 2018, appendix A.3
    "paper": {"batch_size": (16, 32), "learning_rate": (5e-5, 3e-5, 2e-5), "num_epochs": (2, 3, 4)},
}


def sweep(
    run: Finetuning,
    grid: Mapping[str, Sequence[Any]],
    train: Sequence[Any],
    dev: Sequence[Any],
    *,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run every combination of the settings in ``grid``; ``run.out`` becomes the best model.

    ``run/sweep.json`` in it holds the settings and metrics of each run. A stopped sweep resumes within the run that was
    in progress.

    Raises:
        CheckpointError: the record of a finished sweep is missing.
        UsageError: no dev examples, or ``minutes`` in the settings; else as `Finetuning.start`.
    """
    if not dev:
        raise UsageError("a sweep requires dev examples, to select the best run")
    run.settings.check_untimed("a sweep", "search within that time without a sweep")
    run.ranks.check_single("a sweep runs")
    folder = run.out / "run"
    train, dev = prepared_rows(run, train, dev)
    task = task_kind(run.task).of_examples(train, run.options)
    record, best_by = folder / "sweep.json", run.settings.training.best_by or task.best_by
    grid = {name: list(values) for name, values in grid.items()}
    if (folder / "settings.json").is_file() and not (folder / GRID).is_file():
        raise UsageError(f"{run.out} contains a single run: resume it without --sweep, or choose another folder")
    is_new = claim_run_folder(
        run.out, folder / GRID, {"grid": grid, **replace(run, train=train, dev=dev).facts()}, resume=resume
    )
    results: dict[str, Any] = read_json(record) or {}
    for result in results.values():
        result |= {name: numbers(result[name]) for name in ("metrics", "baselines") if name in result}
    combinations = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    points = {_name(point): point for point in combinations}
    heads: dict[tuple[Any, ...], dict[str, Any]] = {}  # fitted heads by the settings that they depend on
    if (run.out / "config.json").is_file():
        if not results:
            raise CheckpointError(f"{record} is missing: load the model in {run.out}, or sweep into another folder")
        return _outcome(results[best_of(results, best_by)])

    def jobs() -> Iterator[tuple[str, Callable[[], Outcome]]]:
        for number, (name, point) in enumerate(points.items(), start=1):
            if name in results:
                continue
            run.log_line(f"run {number} of {len(points)}: {name.replace('_', ' ')}")
            cache = heads.setdefault(tuple(point.get(setting) for setting in HEAD_SETTINGS), {})
            settings = run.settings.changed(**point)
            job = replace(run, out=folder / "runs" / name, settings=settings, compare=False, head_cache=cache)
            yield name, partial(job.start, train, dev, resume=job.out.exists(), should_stop=should_stop)

    def keep(name: str, outcome: Outcome) -> None:
        results[name] = {"settings": points[name], "reason": outcome.reason, "step": outcome.step,
                         "best_step": outcome.best_step, "metrics": outcome.metrics}  # fmt: skip
        write_json(record, results)

    def choose() -> tuple[list[Path], list[Path]]:
        return [folder / "runs" / name for name in results], [folder / "runs" / best_of(results, best_by)]

    with released_if_refused(folder, lambda: not is_new or bool(results)):
        if stopped := search(jobs(), keep, choose):
            return stopped
    best = best_of(results, best_by)
    model = load(folder / "runs" / best, device="cpu")
    results[best]["baselines"] = run.baselines(model, run.frozen(train, dev), train, dev)
    write_json(record, results)
    outcome = _outcome(results[best])
    scores = {f"fine-tuning, {best.replace('_', ' ')}": outcome.metrics[best_by]} | outcome.baselines
    write_best(run.out, folder / "runs" / best, (GRID, record.name), outcome, f"{best_by} on dev", scores)
    run.log_line(f"best by {best_by}: {best.replace('_', ' ')}")
    run.log_line(comparison(best_by, outcome.metrics, outcome.baselines))
    return outcome


def _name(point: Mapping[str, Any]) -> str:
    return "_".join(f"{name}={value}" for name, value in point.items())


def best_of(results: Mapping[str, Any], best_by: str) -> str:
    """The name of the run with the best metric."""
    return max(results, key=lambda name: goodness(best_by, results[name]["metrics"][best_by]))


def _outcome(result: Mapping[str, Any]) -> Outcome:
    baselines = result.get("baselines", {})
    return Outcome(result["reason"], result["step"], result["best_step"], result["metrics"], baselines)
