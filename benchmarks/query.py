"""Latency of embedding one short query at a time.

    python benchmarks/query.py [--num-queries 300] [--rounds 3] [--threads 2] [--out benchmarks/results]

Short passages of Python's documentation go one by one through all-MiniLM-L6-v2. Every system has a separate process.
The processes take turns of all queries, and only one of them computes at a time.
"""

import argparse
from pathlib import Path

import numpy as np
import report
import texts
from comparison import cosines, number
from models import MINILM, converted_folder, published_folder
from peers import REFERENCE, SYSTEMS, System, batching
from turns import start, take_turns
from worker import Turn, Worker

NUM_TOKENS = range(10, 15)  # [CLS] and [SEP] included
EXPLANATION = (
    "median, p95: of the time from text to vector, tokenizing included, over all queries of all rounds. vs ST: median "
    "of sentence-transformers fp32 over this one. bertkit/it: this median over bertkit's at the same precision. min "
    "cosine: to the vectors of sentence-transformers fp32."
)
_COLUMNS = ("system", "median ms", "p95 ms", "vs ST", "bertkit/it", "min cosine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-queries", type=int, default=300)
    results, options = report.begin("query", parser)
    published = published_folder(MINILM)
    queries = short_queries(published, options.num_queries)
    skipped: dict[str, str] = {}
    systems = [system for system in SYSTEMS if not system.name.endswith("tuned")]  # there is nothing to tune
    workers = start(systems, lambda system: _worker(system, published, options.threads), skipped)
    turns = take_turns(workers, options.rounds, queries)
    for worker in workers.values():
        worker.close()
    results |= {"model": MINILM, "texts": texts.description(queries, published), "num_rounds": options.rounds}
    results |= {"systems": _rows(turns), "skipped": skipped}
    report.finish(results, describe(results), options.out)


def short_queries(published: Path, count: int) -> list[str]:
    """Passages whose number of tokens is in NUM_TOKENS."""
    passages = texts.shuffled(texts.documentation())
    ids = batching.token_ids(batching.open_tokenizer(published), passages)
    return [text for text, row in zip(passages, ids, strict=True) if len(row) in NUM_TOKENS][:count]


def _worker(system: System, published: Path, threads: int) -> Worker:
    system.require()
    return Worker("one_by_one", "load", system.module, converted_folder(system, published), system.precision, threads)


def _rows(turns: dict[System, list[Turn]]) -> list[dict]:
    milliseconds = {system: 1e3 * np.array([turn.result[0] for turn in taken[1:]]) for system, taken in turns.items()}
    medians = {system.name: float(np.median(times)) for system, times in milliseconds.items()}
    ours = {system.precision: medians[system.name] for system in turns if system.module == "bertkit"}
    reference = next((taken[-1].result[1] for system, taken in turns.items() if system.name == REFERENCE), None)
    return [
        {
            "system": system.name,
            "precision": system.precision,
            "median_ms": round(medians[system.name], 4),
            "median_ms_of_rounds": np.median(milliseconds[system], axis=1).round(4).tolist(),
            "p95_ms": round(float(np.percentile(milliseconds[system], 95)), 4),
            "ratio_to_reference": medians[REFERENCE] / medians[system.name] if REFERENCE in medians else None,
            "bertkit_ratio": medians[system.name] / ours[system.precision] if system.precision in ours else None,
            "min_cosine": None if reference is None else float(cosines(taken[-1].result[1], reference).min()),
        }
        for system, taken in turns.items()
    ]


def describe(results: dict) -> str:
    about = results["texts"]
    rows = [
        [
            row["system"],
            f"{row['median_ms']:.2f}",
            f"{row['p95_ms']:.2f}",
            number(row["ratio_to_reference"], ".2f"),
            number(row["bertkit_ratio"], ".2f"),
            number(row["min_cosine"], ".6f"),
        ]
        for row in results["systems"]
    ]
    lines = [
        f"# One query at a time with {results['model']}, {results['date']}",
        "",
        f"{about['num_texts']} different queries of {NUM_TOKENS[0]} to {NUM_TOKENS[-1]} tokens (median "
        f"{about['median_tokens']:g}), {results['num_rounds']} rounds.",
        "",
        report.machine(results),
        "",
        report.markdown_table(list(_COLUMNS), *rows),
        "",
        EXPLANATION,
        "",
        *report.skipped_lines(results),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
