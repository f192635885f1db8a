"""`bertkit plan` compared with the planned runs: errors of the planned steps, hours and file sizes.

    python benchmarks/plans.py [--threads 2] [--out FOLDER]

Two runs on ten novels, each of one or two minutes: the length of one is given in minutes, that of the other in steps.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

import report
from pretrained import corpus
from turns import say

from bertkit.pretraining import Inputs, Pretraining, Recipe, plan, read_recipe, with_length

RECIPES = {
    "cpu-minutes, 1 minute": with_length(read_recipe("cpu-minutes"), minutes=1),
    "bert-modern, mini, 20 steps": with_length(
        read_recipe("bert-modern").changed(size="mini", vocab_size=8192), num_steps=20),
}  # fmt: skip
NUM_NOVELS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    results, options = report.begin("plans", parser)
    novels = corpus()[:NUM_NOVELS]
    if not novels:
        raise SystemExit("plans: ../shared/data/english_novels is not there")
    results["plans"] = {name: compare(recipe, Inputs(novels)) for name, recipe in RECIPES.items()}
    report.finish(results, "\n".join([*report.heading("Plans and runs", results), *describe(results)]), options.out)


def compare(recipe: Recipe, inputs: Inputs) -> dict:
    """The figures of a plan, and those of the run."""
    planned = plan(recipe, inputs, device="cpu", log_line=say)
    with tempfile.TemporaryDirectory() as folder:
        run = Pretraining(Path(folder, "run"), recipe, inputs, log_line=lambda line: None, device="cpu")
        run.start(resume=False)
        events = [json.loads(line) for line in (run.out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        saved = max(run.out.glob("checkpoints/*"), key=lambda path: path.stat().st_mtime)
        measured = {
            "num_parameters": next(event["num_parameters"] for event in events if event["event"] == "start"),
            "num_steps": run.state.step,
            "hours": run.state.seconds / 3_600,
            "tokens_per_second": statistics.median(
                event["tokens_per_second"] for event in events if event["event"] == "step"
            ),
            "checkpoint_bytes": _size(saved),
            "shard_bytes": _size(run.out / "shard"),
        }
    return {"planned": asdict(planned), "measured": measured}


def _size(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def describe(results: dict) -> list[str]:
    """A row for each figure of each run."""
    rows = [
        [run, name, f"{planned:,.4g}", f"{value:,.4g}", f"{planned / value:.2f}"]
        for run, both in results["plans"].items()
        for name, value in both["measured"].items()
        if (planned := both["planned"][name]) is not None
    ]
    return [
        report.markdown_table(["run", "figure", "planned", "measured", "ratio"], *rows),
        "",
        f"{NUM_NOVELS} novels. The time of a run includes its evaluations and checkpoints. Its tokens_per_second is "
        "the median of its logged lines, each of which includes an evaluation in a run of twenty steps; that of a plan "
        "includes none.",
        "",
    ]


if __name__ == "__main__":
    main()
