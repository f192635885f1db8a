"""HTML page of a comparison: its tables, and the accuracy of each model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertkit.pages import Markup, paragraph, section, table, write_page
from bertkit.pages.intervals import Score, interval_chart

_PREDICTIONS = {
    "cloze_accuracy": "hidden tokens",
    "cloze_perplexity": "their perplexity",
    "minimal_pairs": "minimal pairs",
}
_DIGITS = {"cloze_perplexity": 1, "word_prob": 5}  # 3 otherwise


def write_comparison_page(
    path: Path, rows: Sequence[Mapping[str, Any]], training: str, cloze: tuple[str, str] | None = None
) -> None:
    """Write the rows of a comparison as one self-contained page.

    Args:
        training: a sentence that says what every model was trained on, and for how long.
        cloze: the text with [MASK] and the word of the key "word_prob".
    """
    models = [row for row in rows if "cloze_accuracy" in row]
    parts: list[Markup] = [paragraph(training)]
    if models:
        parts.append(
            section(
                "What each model predicts",
                paragraph(
                    "Hidden tokens: share of held-out sequences whose middle token the model finds most likely. "
                    "Minimal pairs: share whose grammatical sentence is more likely; chance is 0.5."
                ),
                _table(models, _PREDICTIONS, ["sees", "steps"]),
                interval_chart(
                    "Accuracy on hidden tokens", [_score(row) for row in models], x_name="share of held-out tokens",
                    note="Mean over the seeds, with one standard deviation on each side.",
                ),
            )
        )  # fmt: skip
    if cloze is not None:
        column = {"word_prob": f"probability of “{cloze[1]}”"}
        parts.append(section(f"The hidden word of “{cloze[0]}”", _table(models, column, ["sees"])))
    write_page(path, "Comparison", parts)


def _table(rows: Sequence[Mapping[str, Any]], metrics: Mapping[str, str], facts: Sequence[str]) -> Markup:
    """A row for each model: facts of it, and those of the metrics that were measured."""
    keys = [key for key in metrics if any(key in row for row in rows)]
    cells = [[row["model"], *(row[fact] for fact in facts), *(_mean(row, key) for key in keys)] for row in rows]
    return table(["model", *facts, *(metrics[key] for key in keys)], cells)


def _mean(row: Mapping[str, Any], key: str) -> str | None:
    """A metric, with its standard deviation over the seeds where there is one."""
    if key not in row:
        return None
    digits = _DIGITS.get(key, 3)
    spread = f" ± {row[f'{key}_sd']:.{digits}f}" if f"{key}_sd" in row else ""
    return f"{row[key]:,.{digits}f}{spread}"


def _score(row: Mapping[str, Any]) -> Score:
    mean, spread = row["cloze_accuracy"], row.get("cloze_accuracy_sd", float("nan"))
    return Score(row["model"], mean, mean - spread, mean + spread)
