"""Training a head on a frozen encoder: each text encoded once, compared with the usual loop that encodes every epoch.

    python benchmarks/features.py [--num-texts 2000] [--rounds 2] [--threads 2] [--out benchmarks/results]

2,000 tweets of three labels, ten epochs in batches of 32, a linear layer on the mean of all-MiniLM-L6-v2's hidden
states. The usual loop runs every batch through the encoder in every epoch. bertkit's time is that of the complete job:
encoding, cache and training of the head.
"""

import argparse
import statistics

import report
import texts
from comparison import number
from frozen import ALL_PADDED, BATCH_SIZE, LOOP, NUM_EPOCHS, OURS, System
from models import MINILM, published_folder
from turns import start, take_turns
from worker import Turn, Worker

NUM_UNSEEN = 1_000
LABELS = ("negative", "neutral", "positive")
EXPLANATION = (
    f"seconds: of the whole job, models opened before. Of the usual loop, {NUM_EPOCHS} times the median epoch: it does "
    "the same in each. Of bertkit, reading every tweet once into an empty folder, then the head. by batch, at once: "
    "the speed over transformers', whose loop pads each batch to its longest tweet; or all tweets, which it tokenizes "
    "off the clock, to the longest of all, as tutorials do. loss: mean of the first and of the last epoch; off "
    "by: largest difference in an epoch from the loop by batch. The same "
    "head, initial values and order of batches for all; logistic regression, scikit-learn's at its defaults, reads "
    f"vectors of length 1. accuracy: on {NUM_UNSEEN} unseen tweets. The loops' epochs after the timed ones are trained "
    "off the clock, on the features of the last of them."
)
_COLUMNS = (
    *("system", "head", "seconds", "encoding", "by batch", "at once", "loss, first", "last", "off by", "accuracy"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-texts", type=int, default=2_000)
    results, options = report.begin("features", parser)
    tweets, label_ids = _labeled("train", options.num_texts)
    unseen = _labeled("test", NUM_UNSEEN)
    published = published_folder(MINILM)
    skipped: dict[str, str] = {}

    def make(system: System) -> Worker:
        arguments = (published, system.setting, tweets, label_ids, options.threads)
        return Worker(f"frozen.{system.module}", "Job", *arguments)

    workers = start((*OURS, LOOP, ALL_PADDED), make, skipped)
    turns = take_turns(workers, options.rounds, "run")
    found = {system: worker.turn("accuracy", *unseen).result for system, worker in workers.items()}
    for worker in workers.values():
        worker.close()
    results |= {"model": MINILM, "texts": texts.description(tweets, published), "num_rounds": options.rounds}
    results |= {"systems": _rows(turns, found), "skipped": skipped}
    report.finish(results, describe(results), options.out)


def _labeled(split: str, count: int) -> tuple[list[str], list[int]]:
    tweets = texts.labeled_tweets(split)[:count]
    return [text for text, _ in tweets], [LABELS.index(label) for _, label in tweets]


def _rows(turns: dict[System, list[Turn]], found: dict[System, dict]) -> list[dict]:
    rows = []
    for system, (warm_up, *taken) in turns.items():
        accuracy = found[system]
        row = {"system": system.name, "head": "ten epochs", "accuracy": accuracy["accuracy"]}
        if system in OURS:
            parts = {name: [turn.result["seconds"][name] for turn in taken] for name in taken[0].result["seconds"]}
            row |= {"seconds_of_parts": parts, "losses": taken[-1].result["losses"]}
            rows.append(row | _times(parts["encode"], parts["ten epochs"]))
            logistic = {"head": "logistic regression", "losses": None, "accuracy": accuracy["accuracy_logistic"]}
            rows.append(row | logistic | _times(parts["encode"], parts["logistic regression"]))
        else:
            losses = [turn.result["loss"] for turn in (warm_up, *taken)] + accuracy["losses"]
            epochs = [turn.seconds for turn in taken]
            seconds = NUM_EPOCHS * statistics.median(epochs)
            rows.append(row | {"seconds_of_epochs": epochs, "losses": losses, "seconds": seconds, "encoding": None})
    seconds = {row["system"]: row["seconds"] for row in rows}
    for name, loop in (("vs_by_batch", LOOP), ("vs_at_once", ALL_PADDED)):
        for row in rows:
            row[name] = seconds[loop.name] / row["seconds"] if loop.name in seconds else None
    return rows


def _times(encoding: list[float], head: list[float]) -> dict:
    whole = [one + other for one, other in zip(encoding, head, strict=True)]
    return {"seconds": statistics.median(whole), "encoding": statistics.median(encoding)}


def _difference(losses: list[float] | None, of_loop: list[float] | None) -> str:
    if losses is None or of_loop is None:
        return "-"
    return f"{max(abs(one - other) for one, other in zip(losses, of_loop, strict=True)):.0e}"


def describe(results: dict) -> str:
    about = results["texts"]
    losses = {row["system"]: row["losses"] for row in results["systems"]}
    rows = [
        [
            row["system"],
            row["head"],
            f"{row['seconds']:.2f}",
            number(row["encoding"], ".2f"),
            number(row["vs_by_batch"], ".1f"),
            number(row["vs_at_once"], ".1f"),
            *(f"{row['losses'][place]:.4f}" if row["losses"] else "-" for place in (0, -1)),
            _difference(row["losses"], losses.get(LOOP.name)),
            f"{row['accuracy']:.3f}",
        ]
        for row in results["systems"]
    ]
    again = [row["seconds_of_parts"]["encode again"] for row in results["systems"] if "seconds_of_parts" in row]
    lines = [
        f"# A head on a frozen encoder, {results['date']}",
        "",
        f"{about['num_texts']} tweets (median {about['median_tokens']:g} tokens, longest {about['longest_tokens']}), "
        f"{NUM_EPOCHS} epochs in batches of {BATCH_SIZE}, {results['model']}; {results['num_rounds']} rounds.",
        "",
        report.machine(results),
        "",
        report.markdown_table(list(_COLUMNS), *rows),
        "",
        EXPLANATION,
        "",
        *([f"Every further head finds the features in {1e3 * max(map(max, again)):.0f} ms.", ""] if again else []),
        *report.skipped_lines(results),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
