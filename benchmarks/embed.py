"""bertkit beside what people embed text with today: one run, same texts, same threads, speed and agreement.

    python benchmarks/embed.py [--num-passages 2000] [--rounds 3] [--threads 2] [--out benchmarks/results]

Passages of the documentation of the running Python (the same ones every time for one version of Python) through
all-MiniLM-L6-v2. Every system has a process of its own; they take turns (A B C, A B C, ...) and nothing else runs.
"""

import argparse
import hashlib
import random
import re
import statistics
import sys
from pathlib import Path

import numpy as np
import report
from converted import model_folder
from peers import REFERENCE, SYSTEMS, System, batching
from worker import Turn, Worker, limit_threads

from bertkit.corpus import python_docs
from bertkit.locate import locate

NUM_TUNING_PASSAGES = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-passages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    limit_threads(options.threads)
    results = {"benchmark": "embed", "model": "all-MiniLM-L6-v2"} | report.circumstances(options.threads)
    if results["load_average_before"] > 0.5:
        say(f"the load average is {results['load_average_before']}: on a busy machine these figures mean little")

    published = locate("all-MiniLM-L6-v2")
    passages = [passage.text for passage in python_docs()]
    texts = random.Random(0).sample(passages, min(options.num_passages, len(passages)))
    lengths = [len(ids) for ids in batching.token_ids(batching.open_tokenizer(published), texts)]
    results["workload"] = {
        "num_passages": len(texts),
        "sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16],
        "num_tokens": sum(lengths),
        "median_tokens": statistics.median(lengths),
        "longest_tokens": max(lengths),
    }

    workers, settings, skipped = {}, {}, {}
    for system in SYSTEMS:
        try:
            if not system.installed:
                raise RuntimeError(f"{system.package} is not installed")
            folder = model_folder(system, published)
            setting = best_setting(system, folder, options.threads, texts[:NUM_TUNING_PASSAGES])
            workers[system] = Worker(system.module, folder, system.precision, options.threads, setting, texts)
            settings[system] = setting
        except RuntimeError as error:
            skipped[system.name] = re.sub(r"(/[\w.+-]+)+/", "", str(error))  # no folders in results
            say(f"{system.name}: skipped, {skipped[system.name]}")
    turns = take_turns(workers, options.rounds)
    results |= {"systems": compare(turns, settings), "skipped": skipped}
    table = describe(results)
    print(table)
    say(f"written: {report.write(results, table, options.out)}")


def best_setting(system: System, folder: Path, threads: int, sample: list[str]) -> dict:
    """The fastest of the settings its file names, each tried in a fresh process: a warm-up, then the better of two."""
    choices = system.peer().SETTINGS
    seconds = {}
    for index, setting in enumerate(choices if len(choices) > 1 else []):
        try:
            worker = Worker(system.module, folder, system.precision, threads, setting, sample)
            worker.embed()
            seconds[index] = min(worker.embed().seconds for _ in range(2))
            worker.close()
        except RuntimeError as error:
            say(f"{system.name} {shown(setting)}: {error}")
            continue
        say(f"{system.name} {shown(setting)}: {len(sample) / seconds[index]:.0f} passages/s on a sample")
    return choices[min(seconds, key=seconds.__getitem__, default=0)]


def take_turns(workers: dict[System, Worker], rounds: int) -> dict[System, list[Turn]]:
    """A warm-up each, then ``rounds`` turns each, interleaved."""
    turns = {system: [] for system in workers}
    for number in range(rounds + 1):
        for system, worker in workers.items():
            turn = worker.embed()
            say(f"{'round ' + str(number) if number else 'warm-up'}: {system.name} {turn.seconds:.2f} s")
            if number:
                turns[system].append(turn)
    for worker in workers.values():
        worker.close()
    return turns


def compare(turns: dict[System, list[Turn]], settings: dict[System, dict]) -> list[dict]:
    """One row for each system; a ratio is that of the medians, and None where there is nothing to compare with."""
    medians = {system.name: statistics.median(turn.seconds for turn in turns[system]) for system in turns}
    ours = {system.precision: medians[system.name] for system in turns if system.module == "bertkit"}
    reference = next((turns[system][-1].vectors for system in turns if system.name == REFERENCE), None)
    rows = []
    for system, taken in turns.items():
        median, vectors = medians[system.name], taken[-1].vectors
        row = {
            "system": system.name,
            "precision": system.precision,
            "setting": settings[system],
            "seconds": [round(turn.seconds, 4) for turn in taken],
            "passages_per_second": len(vectors) / median,
            "ratio_to_reference": medians[REFERENCE] / median if REFERENCE in medians else None,
            "bertkit_ratio": median / ours[system.precision] if system.precision in ours else None,
            "max_abs_difference": None,
            "min_cosine": None,
            "peak_bytes": taken[-1].peak_bytes,
        }
        if reference is not None:
            row["max_abs_difference"] = float(np.abs(vectors - reference).max())
            row["min_cosine"] = float((vectors.astype(np.float64) * reference).sum(1).min())
        rows.append(row)
    return rows


def describe(results: dict) -> str:
    work, flags = results["workload"], ", ".join(results["cpu_flags"])
    header = ["system", "passages/s", "x ST fp32", "bertkit is", "max diff", "min cosine", "peak MiB", "seconds", "used"]
    rows = [
        [
            row["system"],
            f"{row['passages_per_second']:.0f}",
            number(row["ratio_to_reference"], ".2f"),
            number(row["bertkit_ratio"], ".2fx"),
            number(row["max_abs_difference"], ".1e"),
            number(row["min_cosine"], ".6f"),
            f"{row['peak_bytes'] / 2**20:.0f}",
            f"{min(row['seconds']):.2f}-{max(row['seconds']):.2f}",
            shown(row["setting"]),
        ]
        for row in results["systems"]
    ]
    lines = [
        f"# Embedding with {results['model']}, {results['date']}",
        "",
        f"{results['cpu']}, {flags}; {results['num_cores']} cores, {results['num_threads']} threads for each system; "
        f"load average before: {results['load_average_before']}.",
        f"{work['num_passages']} passages of Python's documentation, {work['num_tokens']} tokens "
        f"(median {work['median_tokens']:g}, longest {work['longest_tokens']}); median of {len(rows and results['systems'][0]['seconds'])} rounds.",
        f"Python {results['python']}; " + ", ".join(f"{name} {found}" for name, found in results["versions"].items()) + ".",
        "",
        report.markdown_table(header, rows),
        "",
        *(f"- {name}: skipped, {reason}" for name, reason in results["skipped"].items()),
    ]
    return "\n".join(lines) + "\n"


def number(value: float | None, form: str) -> str:
    if value is None:
        return "-"
    return f"{value:{form.rstrip('x')}}" + "x" * form.endswith("x")


def shown(setting: dict) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items()) or "defaults"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
