"""A BERT in four minutes: learn a vocabulary and pre-train on the documentation of the running Python.

    python examples/pretrain_on_python_docs.py

Everything is the product's own: the same as `bertkit pretrain --corpus python-docs --minutes 4`. A run that was stopped
resumes where it was; a finished one is shown again at once.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from bertkit.pretraining import Inputs, Pretraining, read_recipe, with_length
from bertkit.training import stop_signals

RUN = Path(__file__).resolve().parents[1] / ".demo" / "pretrain"
MINUTES = 4.0
TEXTS = (
    "Return a new [MASK] object.",
    "If the file does not [MASK], an error is raised.",
    "Return [MASK] if the object is a string, false otherwise.",
)


def main() -> None:
    recipe = replace(with_length(read_recipe("cpu-minutes"), minutes=MINUTES), samples=TEXTS)
    if not (RUN / "model").is_dir():
        print(f"Pre-training for {MINUTES:g} minutes on the documentation of this Python; Ctrl-C stops and keeps it.")
        with stop_signals(print) as should_stop:
            run = Pretraining(RUN, recipe, Inputs(("python-docs",)))
            if run.start(resume=True, should_stop=should_stop).reason == "stopped":
                print("Stopped and saved; the same command resumes.")
                return
    events = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    evaluations = [event for event in events if event["event"] == "evaluation"]
    samples = [event["samples"] for event in events if event["event"] == "samples"]
    print("\nHeld-out loss (nats) of a hidden token, and how often the likeliest is the right one:\n")
    for event in evaluations[:: max(1, len(evaluations) // 8)] + evaluations[-1:]:
        bar = "#" * round(5 * event["masked_lm_loss"])
        print(f"  {event['seconds']:4.0f} s  {event['masked_lm_loss']:5.2f}  {event['masked_lm_accuracy']:4.0%}  {bar}")
    for before, after in zip(samples[0], samples[-1], strict=True):
        print(f"\n{before['text']}")
        for name, sample in (("before", before), ("after", after)):
            print(f"  {name:7}" + "  ".join(f"{one['token']} {one['score']:.2f}" for one in sample["candidates"]))
    print(f"\nThe model is in {RUN / 'model'}: bertkit fill 'A [MASK] of strings.' --model {RUN / 'model'}")
    print(f"All of the run as a page: bertkit report {RUN} --out report.html")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Stopped; the same command resumes.")
