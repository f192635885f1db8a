"""Fine-tuning the real all-MiniLM-L6-v2 on nine data sets: bertkit beside transformers' Trainer.

    python benchmarks/finetune.py [--list] [--only NAME] [--scale 1.0] [--threads 2] [--work FOLDER] [--out FOLDER]
    python benchmarks/finetune.py --agreement

Scores over three seeds and seconds of training, in over two hours; each run is kept in the work folder when it is
finished, so that the same command goes on. Agreement: losses of the same steps by both, in a minute.
"""

import argparse
from pathlib import Path

import finetune_summary
import report
from finetune_agreement import measure
from finetune_runs import Runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agreement", action="store_true", help="the losses of the same steps")
    parser.add_argument("--work", type=Path, default=report.CACHE, help="folder of finished runs")
    parser.add_argument("--list", action="store_true", help="tell which runs are finished")
    parser.add_argument("--only", metavar="NAME", help="this run alone")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of examples, at most 1")
    results, options = report.begin("finetune", parser)
    if not 0 < options.scale <= 1:
        parser.error("expected a scale above 0 and at most 1")
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
    runs = Runs(options.work, options.scale, options.threads)
    if options.list:
        print("\n".join(runs.states()))
        return
    chosen = [run for run in runs.all() if options.only in (None, run.name)]
    if not chosen:
        raise RuntimeError(f"no run {options.only!r}: --list names them")
    for run in chosen:
        runs.do(run)
    if options.only is None:
        found = finetune_summary.gather(runs)
        _finish(results | found, finetune_summary.describe(found), options.out)


def _finish(results: dict, lines: list[str], out: Path) -> None:
    title = [f"# Fine-tuning, {results['date']}", "", report.machine(results), ""]
    report.finish(results, "\n".join([*title, *lines]), out)


if __name__ == "__main__":
    main()
