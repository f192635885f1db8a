"""Training speed of masked language modeling on real text: bertkit compared with transformers.

    python benchmarks/training.py [--rounds 3] [--scale 1.0] [--threads 2] [--agreement] [--out benchmarks/results]

Two tables: optimizer steps over 4,096 tokens without padding; and an epoch as in tutorials, with texts padded to a
maximum length, compared with the same epoch packed. With ``--agreement``, the final losses in bfloat16 are compared
with those in float32 instead. Every system has a separate process. The processes take turns, and only one of them
computes at a time.
"""

import argparse

import report
import training_agreement
import training_epochs
import training_steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agreement", action="store_true", help="compare losses instead of speed")
    parser.add_argument("--scale", type=float, default=1.0, help="of the tokens of a step, of the steps of --agreement")
    results, options = report.begin("training", parser)
    results["skipped"] = {}
    if options.agreement:
        results["benchmark"] = "training-agreement"
        results["agreement"] = training_agreement.measure(options.threads, options.scale, results["skipped"])
        lines = training_agreement.describe(results["agreement"])
    else:
        results["steps"] = training_steps.measure(options.threads, options.rounds, options.scale, results["skipped"])
        results["epochs"] = training_epochs.measure(options.threads, results["skipped"])
        lines = [*training_steps.describe(results["steps"]), *training_epochs.describe(results["epochs"])]
    title = report.heading("Training", results)
    report.finish(results, "\n".join([*title, *lines, *report.skipped_lines(results)]), options.out)


if __name__ == "__main__":
    main()
