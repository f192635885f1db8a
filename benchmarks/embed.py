"""Embedding compared with other libraries: the same texts and threads in one run; speed and agreement of vectors.

    python benchmarks/embed.py [--rounds 3] [--scale 1.0] [--threads 2] [--out benchmarks/results]

Passages of Python's documentation, Wikipedia paragraphs and tweets go through all-MiniLM-L6-v2, and some passages
through encoders of the base size of BERT, RoBERTa, MPNet, DeBERTa v3 and ModernBERT. Every system has a separate
process for each model. The processes take turns (A B C, A B C, ...), and only one of them computes at a time.
"""

import argparse
import json
import statistics
from pathlib import Path

import products
import report
import texts
from comparison import EXPLANATION, cells, compare
from models import (
    BERT_BASE,
    DEBERTA_BASE,
    MINILM,
    MODERNBERT_BASE,
    MPNET_BASE,
    ROBERTA_BASE,
    converted_folder,
    published_folder,
)
from peers import SYSTEMS, System
from turns import say, shown, start, take_turns
from worker import Turn, Worker

WORKLOADS = {  # model -> source of texts -> how many
    MINILM: {"documentation passages": 2_000, "wikitext paragraphs": 200, "tweets": 1_500},
    BERT_BASE: {"documentation passages": 250},
    ROBERTA_BASE: {"documentation passages": 100},
    MPNET_BASE: {"documentation passages": 100},
    DEBERTA_BASE: {"documentation passages": 100},
    MODERNBERT_BASE: {"documentation passages": 100},
}
TUNING_SHARE = 0.2  # of the texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of texts")
    parser.add_argument("--models", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    results, options = report.begin("embed", parser)
    results |= {"num_rounds": options.rounds, "comparisons": [], "skipped": {}}
    for model in options.models:
        published = published_folder(model)
        skipped: dict[str, str] = {}
        workers = start(SYSTEMS, lambda system, at=published: _worker(system, at, options.threads), skipped)
        ceiling = _products(published, options.threads)
        for name, number in WORKLOADS[model].items():
            try:
                chosen = texts.shuffled(texts.SOURCES[name]())[: max(1, round(number * options.scale))]
            except RuntimeError as error:
                skipped[name] = str(error)
                say(f"{name}: skipped, {error}")
                continue
            results["comparisons"].append(
                {"model": model, "workload": name, "texts": texts.description(chosen, published)}
                | _compare(workers, ceiling, chosen, options.rounds)
            )
        for worker in (*workers.values(), ceiling):
            worker.close()
        results["skipped"] |= {f"{model}: {name}": reason for name, reason in skipped.items()}
    report.finish(results, describe(results), options.out)


def _worker(system: System, published: Path, threads: int) -> Worker:
    system.require()
    folder = converted_folder(system, published)
    return Worker(f"peers.{system.module}", "load", folder, system.precision, threads)


def _products(published: Path, threads: int) -> Worker:
    config = json.loads((published / "config.json").read_text())
    shape = (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"])
    shape += (config["model_type"] == "modernbert",)
    return Worker("products", "load", *shape, threads)


def _compare(workers: dict[System, Worker], ceiling: Worker, chosen: list[str], rounds: int) -> dict:
    sample = chosen[: max(1, round(TUNING_SHARE * len(chosen)))]
    settings = {system: _best_setting(system, worker, sample) for system, worker in workers.items()}
    for worker in workers.values():
        worker.forget_peak()
    before = ceiling.turn().result
    turns = take_turns(workers, rounds, chosen, settings=settings)
    after = ceiling.turn().result
    return {
        "systems": compare(turns, settings),
        "bf16_product_seconds_per_token": statistics.mean((before, after)),
    }


def _best_setting(system: System, worker: Worker, sample: list[str]) -> dict:
    """The fastest of the SETTINGS of a system: a warm-up, then one turn with each."""
    if len(system.settings) == 1:
        return system.settings[0]
    seconds = []
    for setting in system.settings:
        turns: list[Turn] = [worker.turn(sample, **setting) for _ in range(2)]
        seconds.append(turns[-1].seconds)
        say(f"{system.name}, {shown(setting)}: {len(sample) / seconds[-1]:.0f} texts/s on a sample")
    return system.settings[seconds.index(min(seconds))]


def describe(results: dict) -> str:
    lines = report.heading("Embedding", results)
    for comparison in results["comparisons"]:
        about = comparison["texts"]
        lines += [
            f"## {comparison['model']}, {comparison['workload']}",
            "",
            f"{about['num_texts']} texts, {about['num_tokens']} tokens (median {about['median_tokens']:g}, longest "
            f"{about['longest_tokens']}), medians of {results['num_rounds']} rounds.",
            "",
            report.markdown_table(*cells(comparison["systems"])),
            "",
            *_share_of_products(comparison),
        ]
    lines += [EXPLANATION, "", *report.skipped_lines(results)]
    return "\n".join(lines)


def _share_of_products(comparison: dict) -> list[str]:
    row = next((row for row in comparison["systems"] if row["system"] == "bertkit bf16"), None)
    if row is None:
        return []
    alone = comparison["bf16_product_seconds_per_token"] * comparison["texts"]["num_tokens"]
    median = statistics.median(row["seconds"])
    return [
        f"bertkit bf16 takes {median:.2f} s; its linear layers' products alone would take {alone:.2f} s at the "
        f"rate oneDNN reaches here ({products.NUM_ROWS} rows, every core on its own): {alone / median:.0%}.",
        "",
    ]


if __name__ == "__main__":
    main()
