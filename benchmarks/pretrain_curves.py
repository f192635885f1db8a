"""The runs of `pretrain_quality.py` as tables, and their loss curves as a page."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import report
from pretrain_evaluation import LENGTHS, difference
from pretrain_quality import (
    CHOOSING_MINUTES,
    MINUTES,
    NUM_SEQUENCES,
    PAIRS_PER_PARADIGM,
    RATES,
    SEEDS,
    SHAPE,
    SYSTEMS,
    Quality,
    last_loss,
)

from bertkit.pages import Line, line_chart, paragraph, write_page

EXPLANATION = (
    "One corpus, novels; one vocabulary, learned from it; two cores. bertkit: its recipe cpu-minutes. transformers: "
    "BertForMaskedLM in bf16 autocast with the recipe of 2018, on blocks of 128 tokens without padding. Loss: mean of "
    f"the masked tokens in nats, 15 % of {NUM_SEQUENCES:,} sequences of at most the given length, from novels of other "
    "authors, with the same inputs and masks for all. Weights were copied during training and evaluated after it. "
    f"Zorro: share of {PAIRS_PER_PARADIGM} pairs of each of 23 paradigms whose grammatical sentence is more likely, "
    "with the interval of 95 % over paradigms. Of a difference, the first interval is over runs (Student's t, two "
    "seeds each), the second over sequences or paradigms (bootstrap); it is claimed where both leave out 0."
)


def gather(quality: Quality) -> dict[str, Any]:
    """The results of all runs, and the differences between the systems.

    Raises:
        RuntimeError: a run is not finished, those of a seed were made on different processors, or the runs had
            different held-out inputs.
    """
    results = quality.finished()
    runs = {system: [results[run.name] for run in quality.compared(system)] for system in SYSTEMS}
    for seed, of_seed in zip(SEEDS, zip(*runs.values(), strict=True), strict=True):
        if len({result["cpu"] for result in of_seed}) > 1:
            raise RuntimeError(f"the runs of seed {seed} were made on different processors: repeat one of them")
    lasts = {system: [result["points"][-1]["losses"] for result in results] for system, results in runs.items()}
    differences = {}
    for length in map(str, LENGTHS):
        seen = {(last[length]["inputs"], last[length]["labels"]) for of_system in lasts.values() for last in of_system}
        if len(seen) > 1:
            raise RuntimeError(f"the runs were evaluated on different inputs of length {length}")
        differences[length] = difference(*([last[length]["by_sequence"] for last in lasts[s]] for s in SYSTEMS))
    for last in (last[str(length)] for of_system in lasts.values() for last in of_system for length in LENGTHS):
        del last["by_sequence"]  # it stays in the runs' own files
    pairs = {system: [result["minimal_pairs"] for result in results] for system, results in runs.items()}
    if all(found for of_system in pairs.values() for found in of_system):
        differences["zorro"] = difference(
            *([list(found["by_paradigm"].values()) for found in pairs[s]] for s in SYSTEMS)
        )
    return {
        "scale": quality.scale,
        "rates": {run.settings["learning_rate"]: last_loss(results[run.name]) for run in quality.choosing()},
        "chosen_rate": quality.chosen_rate(),
        "runs": runs,
        "differences": differences,
    }


def describe(found: dict[str, Any]) -> list[str]:
    lines = [f"## {SHAPE}, {MINUTES * found['scale']:g} minutes", "", _table_of_runs(found), ""]
    for seed, result in zip(SEEDS, found["runs"]["bertkit"], strict=True):
        lines.append(f"- Seed {seed}: {result['date']}, {result['cpu']}.")
    for name, one in found["differences"].items():
        what = "Zorro" if name == "zorro" else f"Loss at {name}"
        (a, b), (c, d) = one["over_runs"], one["over_items"]
        verdict = "claimed" if one["claimed"] else "not claimed"
        lines.append(
            f"- {what}, bertkit less transformers: {one['difference']:+.4f}; {a:+.4f} to {b:+.4f} over runs, {c:+.4f} "
            f"to {d:+.4f} over {'paradigms' if name == 'zorro' else 'sequences'}: {verdict}."
        )
    header = ["minutes", *(f"{system}, {length}" for length in LENGTHS for system in SYSTEMS)]
    curves = [curve(found, system, length) for length in LENGTHS for system in SYSTEMS]
    rows = [
        [f"{seconds / 60:.2f}", *(f"{loss:.3f}" for loss in losses)]
        for seconds, *losses in zip(curves[0][0], *(losses for _, losses in curves), strict=False)
    ]
    lines += ["", "## Loss over time, mean of the seeds", "", report.markdown_table(header, *rows), ""]
    lines += [f"## Learning rates, {CHOOSING_MINUTES * found['scale']:g} minutes each", "", *_rates(found), ""]
    if found["scale"] < 1:
        lines += [f"A trial: times, sequences and pairs are {found['scale']:g} of what is said below.", ""]
    return [*lines, EXPLANATION, ""]


def curve(found: dict[str, Any], system: str, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and losses of a system, means over its seeds, for the points that every run has."""
    runs = [result["points"] for result in found["runs"][system]]
    points = list(zip(*runs, strict=False))
    seconds = [np.mean([point["seconds"] for point in of_seeds]) for of_seeds in points]
    losses = [np.mean([point["losses"][str(length)]["loss"] for point in of_seeds]) for of_seeds in points]
    return np.array(seconds), np.array(losses)


def write_curves(found: dict[str, Any], path: Path) -> None:
    """The curves as one self-contained page."""
    charts = [
        line_chart(
            f"Held-out loss at {length} tokens",
            [
                Line(system, *curve(found, system, length), color=number + 1, look="dots")
                for number, system in enumerate(SYSTEMS)
            ],
            x_name="time",
            y_name="nats",
            x_kind="time",
        )
        for length in LENGTHS
    ]
    write_page(path, f"Quality per minute: {SHAPE}", [*charts, paragraph(EXPLANATION)])


def _table_of_runs(found: dict[str, Any]) -> str:
    rows = []
    for system, results in found["runs"].items():
        for seed, result in zip(SEEDS, results, strict=True):
            last, pairs = result["points"][-1], result["minimal_pairs"]
            low, high = pairs["interval"] if pairs else (math.nan, math.nan)
            rows.append(
                [
                    f"{system}, seed {seed}",
                    *(f"{last['losses'][str(length)]['loss']:.4f}" for length in LENGTHS),
                    f"{pairs['accuracy']:.1%} ({low:.1%}-{high:.1%})" if pairs else "-",
                    f"{result['num_parameters'] / 1e6:.1f}",
                    f"{last['step']}",
                    f"{last['tokens'] / 1e6:.1f}",
                    f"{last['tokens'] / result['seconds']:.0f}",
                    f"{result['load_average_before']}",
                ]
            )
    header = ["run", *(f"loss at {length}" for length in LENGTHS), "Zorro", "M parameters", "steps", "M tokens"]
    return report.markdown_table([*header, "tokens/s", "load before"], *rows)


def _rates(found: dict[str, Any]) -> list[str]:
    tried = ", ".join(f"{rate:g}: {loss:.4f}" for rate, loss in found["rates"].items())
    chosen = found["chosen_rate"]
    edge = ", an end of the range: a better one may lie beyond" if chosen in (RATES[0], RATES[-1]) else ""
    return [f"AdamW's peak in transformers: loss at the longer length. {tried}; chosen {chosen:g}{edge}."]
