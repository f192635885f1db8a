"""A BERT with both heads from minutes on novels: what it has learned, and after how many tokens.

    python benchmarks/small_bert.py [--minutes 20] [--run FOLDER] [--out benchmarks/results]

The recipe is bert-minutes. The novels of one author are held out: he is in no training text. Chance is half of the next
sentences. ``--run`` describes a finished run of the recipe with these novels instead of training.
"""

import argparse
import json
import shutil
from pathlib import Path

import report
from texts import DATA
from turns import say

import bertkit
from bertkit.evidence.intervals import wilson_interval
from bertkit.pretraining import Inputs, Pretraining, read_recipe, with_length

HELD_OUT = "Hardy_"
NUM_PAIRS = 1_000  # of an evaluation
MASKED = (
    "i [MASK] your father.", "she opened the [MASK] and went in.", "he was a very [MASK] man.",
    "she put her [MASK] on the table.", "the man went to the [MASK] to buy a gallon of milk.",
)  # fmt: skip
PAIRS = (
    ("I am thirsty!", "I drank water."),
    ("the man went to the store.", "he bought a gallon of milk."),
    ("the man went to the store.", "penguins are flightless birds."),
)  # Devlin et al. 2018, section 3.1, and others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--run", type=Path, help="folder of a finished run")
    results, options = report.begin("small-bert", parser)
    run = options.run or train(options.minutes)
    results |= learned(run)
    title = "A BERT with both heads, trained on novels"
    report.finish(results, "\n".join([*report.heading(title, results), *describe(results)]), options.out)


def train(minutes: float) -> Path:
    """Train on the novels; returns the run folder."""
    novels = sorted((DATA / "english_novels").glob("*_*.txt"))
    if not novels:
        raise SystemExit("small_bert: ../shared/data/english_novels is not there")
    kept = tuple(file for file in novels if not file.name.startswith(HELD_OUT))
    held_out = tuple(file for file in novels if file.name.startswith(HELD_OUT))
    run = report.CACHE / "small-bert"
    shutil.rmtree(run, ignore_errors=True)
    recipe = with_length(read_recipe("bert-minutes"), minutes=minutes)
    Pretraining(run, recipe, Inputs(kept, held_out=held_out), log_line=say, device="cpu").start(resume=False)
    return run


def learned(run: Path) -> dict:
    """The evaluations of a run, and what its model answers."""
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    model = bertkit.load(run / "model", device="cpu")
    return {
        "num_parameters": next(event["num_parameters"] for event in events if event["event"] == "start"),
        "evaluations": [event for event in events if event["event"] == "evaluation"],
        "filled": {text: [one.token for one in model.fill_mask(text)[0].candidates] for text in MASKED},
        "follows": [[*pair, model.next_sentence_probability(*pair)] for pair in PAIRS],
    }


def describe(results: dict) -> list[str]:
    columns = {
        "minutes": lambda one: f"{one['seconds'] / 60:.0f}",
        "tokens": lambda one: f"{one['tokens']:,}",
        "masked LM loss": lambda one: f"{one['masked_lm_loss']:.2f}",
        "masked tokens right": lambda one: f"{one['masked_lm_accuracy']:.1%}",
        "next sentences right": lambda one: f"{one['next_sentence_accuracy']:.1%}",
    }
    rows = [[show(one) for show in columns.values()] for one in results["evaluations"]]
    last = results["evaluations"][-1]["next_sentence_accuracy"]
    low, high = wilson_interval(round(last * NUM_PAIRS), NUM_PAIRS)
    return [
        f"{results['num_parameters']:,} parameters; recipe bert-minutes; the novels of an author are held out.",
        f"Next sentences at the end: {last:.1%} of {NUM_PAIRS:,} pairs ({low:.1%} to {high:.1%}); chance is 50 %.",
        "", report.markdown_table(list(columns), *rows),
        "", report.markdown_table(["text", "most likely tokens"], *(
            [text.replace("[MASK]", "`[MASK]`"), ", ".join(tokens)] for text, tokens in results["filled"].items()
        )),
        "", report.markdown_table(["first", "second", "follows"], *(
            [first, second, f"{probability:.2f}"] for first, second, probability in results["follows"]
        )),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
