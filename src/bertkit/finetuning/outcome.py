"""Records of finished fine-tuning runs: digests of examples, and the comparison of several runs."""

from collections.abc import Mapping
from pathlib import Path

from bertkit.reports.model_card import with_section
from bertkit.reports.parts import markdown_table
from bertkit.training import Outcome, write_outcome


def write_comparison(outcome: Outcome, folder: Path, metric: str, scores: Mapping[str, float]) -> None:
    """Record an outcome, and add the scores by method to the card of its model, under the name of the ``metric``."""
    write_outcome(outcome, folder)
    card, table = folder / "README.md", markdown_table(("method", metric), scores.items())
    text = with_section(card.read_text(encoding="utf-8"), "Comparison", table)
    card.write_text(text, encoding="utf-8", newline="\n")
