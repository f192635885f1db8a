"""Tables of the runs of fine-tuning: scores of both systems' models, and training times."""

import math
import statistics
from typing import Any

import report
from finetune_runs import SEEDS, SYSTEMS, TIMED_SEED, Runs
from finetune_tasks import TASKS

BARS = {"float32": 1 / 3, "bfloat16": 0.7}  # of transformers' time at the same precision
EXPLANATION = (
    "all-MiniLM-L6-v2 with a new head; both systems with the same examples, batches of 32, learning rate, linear "
    "warm-up over a tenth, AdamW with bias correction, weight decay 0.01, dropout 0.1, gradients clipped at 1. "
    "Each draws its new head as it does by default, with a standard deviation of 0.051 (bertkit) and 0.02. "
    "transformers: Trainer at its defaults, batches padded to their longest, examples and answers treated as its "
    "published scripts do. Scores are of test examples that neither has seen, in hundredths, by one program for both. "
    "±: standard deviation over seeds; of a difference, its standard error, sqrt((s1^2 + s2^2) / n). Seconds are of "
    "training alone, on a machine that did nothing else: tokenizing, imports and compiled code come before, writing "
    "the model after."
)


def gather(runs: Runs) -> dict[str, Any]:
    """The results of all runs, and the differences between the systems.

    Raises:
        RuntimeError: a run is not finished, or the timed runs of a task were made on different processors.
    """
    results = runs.finished()
    timed = [result for name, result in results.items() if runs.is_timed(name)]
    _check_processors(timed)
    tasks = []
    for task in TASKS:
        found: dict[str, Any] = {"task": task.name, "metric": task.metric, "num_epochs": task.settings.num_epochs}
        for precision in SEEDS:
            for system in SYSTEMS:
                of_seeds = [results[name] for name in runs.of(task, system, precision)]
                found["num_train"], found["num_test"] = of_seeds[0]["num_train"], of_seeds[0]["num_test"]
                found[f"{system} {precision}"] = {
                    "scores": [100 * result["scores"][task.metric] for result in of_seeds],
                    "seconds": of_seeds[SEEDS[precision].index(TIMED_SEED)]["seconds"],
                }
        tasks.append(found | _difference(*(found[f"{system} float32"]["scores"] for system in SYSTEMS)))
    pooled = {
        "difference": statistics.mean(found["difference"] for found in tasks),
        "standard_error": math.hypot(*(found["standard_error"] for found in tasks)) / len(tasks),
    }
    loads = [result["load_average_before"] for result in timed]
    found = {"scale": runs.scale, "tasks": tasks, "pooled": pooled, "most_load_average_before": max(loads)}
    return found | {"processors": sorted({result["cpu"] for result in timed})}


def _check_processors(timed: list[dict[str, Any]]) -> None:
    processors: dict[str, set[str]] = {}
    for result in timed:
        processors.setdefault(result["run"]["task"], set()).add(result["cpu"])
    for task, found in processors.items():
        if len(found) > 1:
            raise RuntimeError(f"the timed runs of {task} were made on different processors: repeat some of them")


def describe(found: dict[str, Any]) -> list[str]:
    difference, error = found["pooled"]["difference"], found["pooled"]["standard_error"]
    verdict = "above" if difference > -2 * error else "NOT above"
    lines = [
        f"## Scores, float32, {len(SEEDS['float32'])} seeds",
        "",
        _table_of_scores(found["tasks"]),
        "",
        f"All tasks together: bertkit less transformers {difference:+.2f} ± {error:.2f}, {verdict} minus two standard "
        f"errors.",
        "",
        "## Seconds of training",
        "",
        _table_of_times(found["tasks"]),
        "",
    ]
    for precision, bar in BARS.items():
        share = _total(found["tasks"], "bertkit", precision) / _total(found["tasks"], "transformers", precision)
        over = [one["task"] for one in found["tasks"] if _share(one, precision) > bar]
        lines.append(
            f"- {precision}: bertkit takes {share:.2f} of transformers' time, all tasks together; the aim is at most "
            f"{bar:.2f}. Tasks above it: {', '.join(over) or 'none'}."
        )
    share = _total(found["tasks"], "bertkit", "bfloat16") / _total(found["tasks"], "transformers", "float32")
    lines += [f"- bertkit in bfloat16 takes {share:.2f} of transformers' time at its default, float32.", ""]
    lines += [
        f"Highest load average before a timed run: {found['most_load_average_before']}. Timed on: "
        f"{', '.join(found['processors'])}.",
        "",
    ]
    if found["scale"] < 1:
        lines += [f"A trial with {found['scale']:g} of the examples: its scores mean nothing.", ""]
    return [*lines, EXPLANATION, ""]


def _difference(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Our score minus theirs, and its standard error, in percentage points."""
    variances = [statistics.variance(scores) / len(scores) for scores in (ours, theirs)]
    return {
        "difference": statistics.mean(ours) - statistics.mean(theirs),
        "standard_error": math.sqrt(sum(variances)),
    }


def _table_of_scores(tasks: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{one['task']}, {one['metric']}",
            f"{one['num_train']} x {one['num_epochs']}",
            str(one["num_test"]),
            *(_mean_and_deviation(one[f"{system} float32"]["scores"]) for system in SYSTEMS),
            f"{one['difference']:+.2f} ± {one['standard_error']:.2f}",
            *(f"{one[f'{system} bfloat16']['scores'][0]:.2f}" for system in SYSTEMS),
        ]
        for one in tasks
    ]
    header = ["task", "examples x epochs", "test", *SYSTEMS, "difference", *(f"{system} bf16" for system in SYSTEMS)]
    return report.markdown_table(header, *rows)


def _table_of_times(tasks: list[dict[str, Any]]) -> str:
    rows = []
    for one in tasks:
        row = [one["task"]]
        for precision in SEEDS:
            row += [f"{one[f'{system} {precision}']['seconds']:.1f}" for system in SYSTEMS]
            row.append(f"{_share(one, precision):.2f}")
        row.append(f"{one['bertkit bfloat16']['seconds'] / one['transformers float32']['seconds']:.2f}")
        rows.append(row)
    header = ["task", *(f"{what} {short}" for short in ("fp32", "bf16") for what in (*SYSTEMS, "share"))]
    return report.markdown_table([*header, "bertkit bf16 / transformers fp32"], *rows)


def _mean_and_deviation(scores: list[float]) -> str:
    return f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"


def _share(one: dict[str, Any], precision: str) -> float:
    """bertkit's time as a share of transformers' time."""
    ours, theirs = (one[f"{system} {precision}"]["seconds"] for system in SYSTEMS)
    return ours / theirs


def _total(tasks: list[dict[str, Any]], system: str, precision: str) -> float:
    """Seconds of all tasks together."""
    return sum(one[f"{system} {precision}"]["seconds"] for one in tasks)
