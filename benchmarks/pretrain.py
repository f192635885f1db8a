"""Complete pre-training on real text: bertkit compared with transformers.

    python benchmarks/pretrain.py --speed [--rounds 3]
    python benchmarks/pretrain.py --quality [--list] [--only PATTERN] [--scale 1.0]
    and both: [--threads 2] [--work FOLDER] [--out benchmarks/results]

Speed: tokens per second of the whole loop, without padding. Quality: held-out loss after twenty minutes on two cores;
seven runs take two hours. Each finished run writes a file of results, so the same command resumes. ``--scale``
multiplies all times.
"""

import argparse
from pathlib import Path

import pretrain_curves
import pretrain_speed
import report
from long_runs import add_options
from pretrain_quality import Quality


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--speed", action="store_true", help="real tokens per second")
    kind.add_argument("--quality", action="store_true", help="held-out loss after the same time")
    parser.add_argument("--work", type=Path, default=report.CACHE, help="folder of what is prepared, and of models")
    add_options(parser)
    results, options = report.begin("pretrain-speed", parser)
    results["skipped"] = {}
    try:
        if options.speed:
            _speed(results, options)
        else:
            _quality(results, options)
    except RuntimeError as error:
        raise SystemExit(f"pretrain: {error}") from None


def _speed(results: dict, options: argparse.Namespace) -> None:
    results["tables"] = pretrain_speed.measure(options.work, options.threads, options.rounds, results["skipped"])
    _finish(results, pretrain_speed.describe(results["tables"]), options.out)


def _quality(results: dict, options: argparse.Namespace) -> None:
    quality = Quality(options.work, options.out, options.scale, options.threads)
    if not quality.carry_out(options):
        return
    found = pretrain_curves.gather(quality)
    path = _finish(results | {"benchmark": "pretrain-quality"} | found, pretrain_curves.describe(found), options.out)
    pretrain_curves.write_curves(found, path.with_suffix(".html"))


def _finish(results: dict, lines: list[str], out: Path) -> Path:
    title = report.heading("Pre-training", results)
    return report.finish(results, "\n".join([*title, *lines, *report.skipped_lines(results)]), out)


if __name__ == "__main__":
    main()
