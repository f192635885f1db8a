"""Fine-tuning all-MiniLM-L6-v2 on nine data sets: bertkit compared with transformers' Trainer.

    python benchmarks/finetune.py [--list] [--only PATTERN] [--scale 1.0] [--threads 2] [--out FOLDER]
    python benchmarks/finetune.py --agreement

Measured are scores for three seeds and the training time of the first seed; all runs take about two hours. Each
finished run writes a file of results, so the same command resumes. ``--scale`` multiplies the numbers of examples.
``--agreement`` compares the losses of the same steps in both libraries, and takes a minute.
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
