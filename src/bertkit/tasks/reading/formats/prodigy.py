"""Prodigy's tasks: a text with spans, one label, or options, and the answer of the annotator."""

from typing import Any

from bertkit.tasks.reading.formats.format import Format, Sample

_OWN_KEYS = {"_input_hash", "_task_hash", "answer"}


def _is_prodigy(sample: Sample) -> bool:
    row = sample.row
    has_tokens = isinstance(row.get("tokens"), list) and all(isinstance(token, dict) for token in row["tokens"])
    return isinstance(row.get("text"), str) and bool(_OWN_KEYS & row.keys() or ("spans" in row and has_tokens))


def _translate(values: dict[str, Any]) -> tuple[dict[str, Any], str]:
    answer = values.get("answer", "accept")
    if answer != "accept":
        return {}, f" has the answer {answer!r:.20}: only accepted tasks are examples; remove it"
    row = {name: value for name, value in values.items() if name not in ("tokens", "options", "accept")}
    if "options" in values or "accept" in values:
        chosen = values.get("accept") or []
        return row | {"label": [str(name) for name in (chosen if isinstance(chosen, list) else [chosen])]}, ""
    tokens = values.get("tokens")
    if isinstance(tokens, list) and all(isinstance(token, dict) for token in tokens):
        row["word_spans"] = [[token.get("start"), token.get("end")] for token in tokens]
    if "label" not in row:
        row["spans"] = values.get("spans") or []
    return row, ""


PRODIGY = Format("Prodigy", _is_prodigy, translate=_translate)
