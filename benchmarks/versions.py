"""Speed of training of this version beside that of an earlier checkout, in turns, with the same data and seed.

python benchmarks/versions.py /path/of/earlier/checkout
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import report
from turns import say

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"
SETTINGS = {  # arguments that both versions know
    "fine-tuning": ("finetune", "sequence-classification", "--train", "tweets.csv", "--model", "all-MiniLM-L6-v2",
                    "--num-epochs", "1", "--learning-rate", "1e-4", "--seed", "1", "--device", "cpu"),
    "pre-training": ("pretrain", "--corpus", "novels", "--device", "cpu", "--set", "model.size=tiny",
                     "training.batch_size=32", "training.num_steps=40",
                     "training.evaluate_every=1000", "training.seed=1"),
}  # fmt: skip


def write_data(folder: Path, num_rows: int) -> None:
    """The first tweets with their sentiment, and beginnings of novels."""
    with open(DATA / "tweet_sentiment_extraction" / "train.csv", encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["sentiment"]) for row in csv.DictReader(file) if row["text"].strip()]
    with open(folder / "tweets.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows[:num_rows]])
    (folder / "novels").mkdir()
    for novel in sorted((DATA / "english_novels").glob("*.txt"))[:3]:
        (folder / "novels" / novel.name).write_text(novel.read_text(encoding="utf-8")[:200_000], encoding="utf-8")


def train(checkout: Path, arguments: tuple[str, ...], folder: Path, threads: int) -> dict[str, float]:
    """Seconds per step after the first, which compiles, and the last loss of a run of a version."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "bertkit", *arguments, "--out", str(Path(out) / "run")]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        (log,) = Path(out).rglob("metrics.jsonl")
        events = [json.loads(line) for line in log.read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    loss = next(value for name, value in steps[-1].items() if name.endswith("loss"))
    return {"seconds": (steps[-1]["seconds"] - steps[0]["seconds"]) / (steps[-1]["step"] - steps[0]["step"]),
            "loss": loss}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("earlier", type=Path, help="a checkout of the earlier version")
    parser.add_argument("--rows", type=int, default=480, help="tweets")
    results, options = report.begin("versions", parser)
    commit = subprocess.run(
        ["git", "-C", str(options.earlier), "log", "-1", "--format=%h, %ad", "--date=short"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    versions, results["earlier"], rows = {"earlier": options.earlier, "now": ROOT}, commit, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, options.rows)
        for number in range(options.rounds + 1):  # the first is a warm-up
            for work, arguments in SETTINGS.items():
                for version, checkout in versions.items():
                    row = {"round": number, "work": work, "version": version}
                    rows.append(row | train(checkout.absolute(), arguments, folder, options.threads))
                    say(str(rows[-1]))
    results["rows"] = rows
    table = []
    for work in SETTINGS:
        times = {version: [row["seconds"] for row in rows if (row["work"], row["version"]) == (work, version) and
                           row["round"]] for version in versions}  # fmt: skip
        before, now = (statistics.median(values) for values in times.values())
        ratios = ", ".join(f"{later / first:.3f}" for first, later in zip(*times.values(), strict=True))
        table.append([work, f"{1e3 * before:,.1f}", f"{1e3 * now:,.1f}", f"{now / before:.3f}", ratios])
    text = (
        f"Milliseconds per optimizer step, medians of {options.rounds} rounds in turn after a warm-up. Fine-tuning: "
        f"MiniLM, {options.rows} tweets, batches of 32; pre-training: cpu-minutes, size tiny, batches of 32, 40 steps. "
        f"The earlier version is {commit}."
    )
    head = ["work", "earlier", "now", "now / earlier", "each round"]
    report.finish(results, "\n".join([*report.heading("Training beside an earlier version", results), text, "",
                                      report.markdown_table(head, *table)]), options.out)  # fmt: skip


if __name__ == "__main__":
    main()
