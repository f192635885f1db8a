"""Latency of embedding one short query at a time.

    python benchmarks/query.py [--num-queries 300] [--rounds 3] [--threads 2] [--out benchmarks/results]

Short passages of Python's documentation go one by one through all-MiniLM-L6-v2 and through encoders of the base size of
BERT and ModernBERT. Every system has a separate process for each model. The processes take turns of all queries, and
only one of them computes at a time.
"""

import argparse
from pathlib import Path

import numpy as np
import report
import texts
from comparison import cosines, number
from models import BERT_BASE, MINILM, MODERNBERT_BASE, converted_folder, published_folder
from peers import REFERENCE, SYSTEMS, System, batching
from turns import start, take_turns
from worker import Turn, Worker

MODELS = (MINILM, BERT_BASE, MODERNBERT_BASE)
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
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    results, options = report.begin("query", parser)
    queries = short_queries(published_folder(MINILM), options.num_queries)  # all models have its vocabulary
    results |= {"num_rounds": options.rounds, "texts": texts.description(queries, published_folder(MINILM))}
    results |= {"comparisons": [], "skipped": {}}
    systems = [system for system in SYSTEMS if not system.name.endswith("tuned")]  # there is nothing to tune
    for model in options.models:
        published, skipped = published_folder(model), {}
        workers = start(systems, lambda system, at=published: _worker(system, at, options.threads), skipped)
        turns = take_turns(workers, options.rounds, queries)
        for worker in workers.values():
            worker.close()
        results["comparisons"].append({"model": model, "systems": _rows(turns)})
        results["skipped"] |= {f"{model}: {name}": reason for name, reason in skipped.items()}
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
    tables = []
    for comparison in results["comparisons"]:
        rows = [
            [
                row["system"],
                f"{row['median_ms']:.2f}",
                f"{row['p95_ms']:.2f}",
                number(row["ratio_to_reference"], ".2f"),
                number(row["bertkit_ratio"], ".2f"),
                number(row["min_cosine"], ".6f"),
            ]
            for row in comparison["systems"]
        ]
        tables += [f"## {comparison['model']}", "", report.markdown_table(list(_COLUMNS), *rows), ""]
    lines = [
        f"# One query at a time, {results['date']}",
        "",
        f"{about['num_texts']} different queries of {NUM_TOKENS[0]} to {NUM_TOKENS[-1]} tokens (median "
        f"{about['median_tokens']:g}), {results['num_rounds']} rounds.",
        "",
        report.machine(results),
        "",
        *tables,
        EXPLANATION,
        "",
        *report.skipped_lines(results),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
