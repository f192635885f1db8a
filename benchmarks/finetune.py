"""Fine-tuning the real all-MiniLM-L6-v2 on nine data sets: bertkit beside transformers' Trainer.

    python benchmarks/finetune.py [--list] [--only PATTERN] [--scale 1.0] [--threads 2] [--out FOLDER]
    python benchmarks/finetune.py --agreement

Scores over three seeds, and of the first the seconds of training, in some two hours; each run leaves a file of results
when it is finished, so that the same command goes on; ``--scale`` is of the numbers of examples. Agreement: losses of
the same steps by both, in a minute.
"""

import argparse
from pathlib import Path

import finetune_summary
import report
from finetune_agreement import measure
from finetune_runs import Runs
from long_runs import add_options


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agreement", action="store_true", help="the losses of the same steps")
    add_options(parser)
    results, options = report.begin("finetune", parser)
    try:
        if options.agreement:
            results["benchmark"] = "finetune-agreement"
            results["lines"] = list(measure(options.threads))
            _finish(results, results["lines"], options.out)
        else:
            _compare(results, options)
    except RuntimeError as error:
        raise SystemExit(f"finetune: {error}") from None


def _compare(results: dict, options: argparse.Namespace) -> None:
    runs = Runs(options.out, options.scale, options.threads)
    if runs.carry_out(options):
        found = finetune_summary.gather(runs)
        _finish(results | found, finetune_summary.describe(found), options.out)


def _finish(results: dict, lines: list[str], out: Path) -> None:
    title = report.heading("Fine-tuning", results)
    report.finish(results, "\n".join([*title, *lines]), out)


if __name__ == "__main__":
    main()
