"""HTML page of a comparison: its table, the accuracy of each model, and exact matches by length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.pages import Line, Markup, line_chart, section, table, write_page
from bertkit.pages.intervals import Score, interval_chart

_NAMES = {
    "cloze_accuracy": "Hidden tokens", "cloze_perplexity": "Their perplexity", "minimal_pairs": "Minimal pairs",
    "parts_of_speech": "Parts of speech", "senses": "Word senses", "similarity": "Sentence similarity",
    "word_prob": "The given word",
}  # fmt: skip


def write_comparison_page(path: Path, rows: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> None:
    """Write the rows of a comparison as one self-contained page."""
    models = [row for row in rows if "cloze_accuracy" in row]
    writers = [row for row in rows if f"exact_of_{lengths[0]}" in row]
    parts: list[Markup] = []
    if models:
        keys = [key for key in _NAMES if any(key in row for row in models)]
        cells = [[row["model"], row["sees"], row["steps"], *(row.get(key) for key in keys)] for row in models]
        scores = [_score(row) for row in models]
        parts.append(
            section(
                "What each model predicts",
                table(["model", "sees", "steps", *(_NAMES[key] for key in keys)], cells),
                interval_chart(
                    "Accuracy on hidden tokens", scores, x_name="share of held-out tokens",
                    note="Mean over the seeds, with one standard deviation on each side.",
                ),
            )
        )  # fmt: skip
    if writers:
        lines = [
            Line(
                row["model"],
                np.array(lengths, np.float64),
                np.array([row[f"exact_of_{length}"] for length in lengths]),
                color,
                "dots",
            )
            for color, row in enumerate(writers, 1)
        ]
        parts.append(
            section(
                "Texts written backwards",
                line_chart("Texts without a wrong character", lines, x_name="characters", x_kind="integer",
                           y_name="share", note="Training had from 2 to 20 characters."),
            )
        )  # fmt: skip
    write_page(path, "Comparison", parts)


def _score(row: Mapping[str, Any]) -> Score:
    mean, spread = row["cloze_accuracy"], row.get("cloze_accuracy_sd", float("nan"))
    return Score(row["model"], mean, mean - spread, mean + spread)
