"""The folder of the best of several runs."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bertkit.files.whole_files import whole_folder
from bertkit.reports.model_card import with_section
from bertkit.reports.parts import markdown_table
from bertkit.training import Outcome, write_outcome


def write_best(
    out: Path, best: Path, records: Sequence[str], outcome: Outcome, metric: str, scores: Mapping[str, float],
    change: Callable[[Path], None] = lambda folder: None,
) -> None:  # fmt: skip
    """Replace the folder of a search by the model of its best run, with the records of the search.

    Args:
        records: names of files in ``out/run``.
        change: changes the model.
        metric, scores: scores by method for the card of the model, under the name of the metric.
    """
    with whole_folder(out, overwrite=True) as whole:
        shutil.copytree(best, whole, dirs_exist_ok=True)
        for name in records:
            shutil.copy(out / "run" / name, whole / "run" / name)
        change(whole)
        write_outcome(outcome, whole)
        card, table = whole / "README.md", markdown_table(("method", metric), scores.items())
        text = with_section(card.read_text(encoding="utf-8"), "Comparison", table)
        card.write_text(text, encoding="utf-8", newline="\n")
