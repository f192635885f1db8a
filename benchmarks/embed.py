"""bertkit beside what people embed text with today: same texts, same threads, one run; speed and agreement.

    python benchmarks/embed.py [--num-passages 2000] [--rounds 3] [--threads 2] [--out benchmarks/results]

Passages of the running Python's documentation (the same ones every time, for one version of Python) go through
all-MiniLM-L6-v2. Every system has a process of its own; they take turns (A B C, A B C, ...) and nothing else runs.
"""

import argparse
import hashlib
import random
import re
import statistics
from pathlib import Path

import report
from comparison import EXPLANATION, cells, compare
from converted import model_folder
from peers import SYSTEMS, batching
from turns import best_setting, say, take_turns
from worker import Worker, limit_threads

from bertkit.corpus import python_docs
from bertkit.locate import locate

MODEL = "all-MiniLM-L6-v2"
NUM_TUNING_PASSAGES = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-passages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.num_passages < 1 or options.rounds < 1 or options.threads < 1:
        parser.error("expected numbers of at least 1")
    limit_threads(options.threads)
    results = {"benchmark": "embed", "model": MODEL} | report.circumstances(options.threads)
    if results["load_average_before"] > 0.5:
        say(f"load average {results['load_average_before']}: figures taken on a busy machine mean little")

    published = locate(MODEL)
    passages = [passage.text for passage in python_docs()]
    texts = random.Random(0).sample(passages, min(options.num_passages, len(passages)))
    results["workload"] = workload(texts, published) | {"num_rounds": options.rounds}

    workers, settings, skipped = {}, {}, {}
    for system in SYSTEMS:
        try:
            if not system.installed:
                raise RuntimeError(f"{system.package} is not installed")
            folder = model_folder(system, published)
            settings[system] = best_setting(system, folder, options.threads, texts[:NUM_TUNING_PASSAGES])
            arguments = (folder, system.precision, options.threads, settings[system], texts)
            workers[system] = Worker(system.module, *arguments)
        except RuntimeError as error:
            skipped[system.name] = re.sub(r"(/[\w.+-]+)+/", "", str(error))  # no folders in results
            say(f"{system.name}: skipped, {skipped[system.name]}")
    turns = take_turns(workers, options.rounds)
    results |= {"systems": compare(turns, settings), "skipped": skipped}
    text = describe(results)
    print(text)
    say(f"written: {report.write(results, text, options.out)}")


def workload(texts: list[str], published: Path) -> dict:
    lengths = [len(ids) for ids in batching.token_ids(batching.open_tokenizer(published), texts)]
    return {
        "num_passages": len(texts),
        "sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16],
        "num_tokens": sum(lengths),
        "median_tokens": statistics.median(lengths),
        "longest_tokens": max(lengths),
    }


def describe(results: dict) -> str:
    work = results["workload"]
    lines = [
        f"# Embedding with {results['model']}, {results['date']}",
        "",
        f"{work['num_passages']} passages of Python's documentation, {work['num_tokens']} tokens (median "
        f"{work['median_tokens']:g}, longest {work['longest_tokens']}), {work['num_rounds']} rounds.",
        "",
        report.machine(results),
        "",
        report.markdown_table(*cells(results["systems"])),
        "",
        EXPLANATION,
        "",
        *(f"- {name}: skipped, {reason}" for name, reason in results["skipped"].items()),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
