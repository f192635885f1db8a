"""Tokens encoded per second by one core and by all cores.

    python benchmarks/serve_sizing.py [--seconds 4] [--threads 2] [--out benchmarks/results]

Passages of Python's documentation through all-MiniLM-L6-v2 in each precision, without HTTP: the figures from which the
number of cores of a server is estimated.
"""

import argparse
import statistics
import time

import report
import texts
import torch
from models import MINILM, published_folder

import bertkit

_NUM_PASSAGES = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    results, options = report.begin("serve-sizing", parser)
    passages = texts.shuffled(texts.documentation())[:_NUM_PASSAGES]
    rows = []
    for precision in ("float32", "bfloat16", "int8"):
        model = bertkit.load(published_folder(MINILM), device="cpu", precision=precision)
        row = {"precision": precision}
        for threads in (1, options.threads):
            torch.set_num_threads(threads)
            row[f"{threads} threads"] = tokens_per_second(model, passages, options.seconds)
        rows.append(row)
    results |= {"rows": rows, "num_passages": len(passages)}
    report.finish(results, describe(results), options.out)


def tokens_per_second(model: bertkit.Model, passages: list[str], seconds: float) -> float:
    """Median over runs of all passages, special tokens included."""
    embed_report = bertkit.InferenceReport()
    model.embed(passages, report=embed_report)  # warm
    rates, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(rates) < 3:
        start = time.perf_counter()
        model.embed(passages, report=bertkit.InferenceReport())
        rates.append(embed_report.num_tokens / (time.perf_counter() - start))
    return statistics.median(rates)


def describe(results: dict) -> str:
    """A report in Markdown."""
    names = [name for name in results["rows"][0] if name != "precision"]
    rows = [[row["precision"], *(f"{row[name]:,.0f}" for name in names)] for row in results["rows"]]
    return "\n".join(
        [
            f"# Tokens per second of all-MiniLM-L6-v2, {results['date']}",
            "",
            report.machine(results),
            "",
            report.markdown_table(["precision", *(name.replace("1 threads", "one core") for name in names)], *rows),
            "",
            f"{results['num_passages']} passages of Python's documentation at a time; special tokens count, medians.",
        ]
    )


if __name__ == "__main__":
    main()
