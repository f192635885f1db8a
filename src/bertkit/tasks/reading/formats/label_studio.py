"""Label Studio's exports JSON, JSON-MIN, CSV and TSV, with entities or choices."""

import json
from typing import Any

from bertkit.tasks.reading.formats.format import Format, Sample
from bertkit.tasks.reading.formats.spans import span_of

_OF_TASK = {"id", "annotation_id", "annotator", "lead_time", "created_at", "updated_at"}
_CHOICES = ("choice", "sentiment", "label")


def _is_export(sample: Sample) -> bool:
    keys = sample.row.keys()
    return isinstance(sample.row.get("data"), dict) and bool({"annotations", "completions"} & keys)


def _is_min(sample: Sample) -> bool:
    keys = sample.row.keys()
    return "annotation_id" in keys or {"annotator", "lead_time"} <= keys


def _of_export(values: dict[str, Any]) -> tuple[dict[str, Any], str]:
    done = [each for each in values.get("annotations") or values.get("completions") or [] if isinstance(each, dict)]
    done = [each for each in done if not each.get("was_cancelled")]
    if not done:
        return {}, " has no annotation: annotate it, or remove the task"
    of_each = [[result for result in each.get("result", []) if isinstance(result, dict)] for each in done]
    parts = [[result.get("value", {}) for result in results] for results in of_each]
    if any(each != parts[0] for each in parts):
        return {}, f" has {len(done)} annotations that differ: keep one of them"
    text = _text(values["data"], next((str(result.get("to_name", "")) for result in of_each[0]), ""))
    return _row(values.get("id"), text, parts[0])


def _of_min(values: dict[str, Any]) -> tuple[dict[str, Any], str]:
    values = {name: _parsed(value) for name, value in values.items()}
    parts = [part for value in values.values() if isinstance(value, list) for part in value if isinstance(part, dict)]
    text = _text({name: value for name, value in values.items() if name not in {*_OF_TASK, *_CHOICES}}, "text")
    choices = next((values[name] for name in _CHOICES if name in values), None)
    if isinstance(choices, dict):
        choices = choices.get("choices")
    if isinstance(choices, str):
        choices = [choices]
    if not parts and isinstance(choices, list):
        parts = [{"choices": choices}]
    return _row(values.get("id"), text, parts)


def _parsed(value: Any) -> Any:
    """A value of a table, where lists and objects are in JSON."""
    if not isinstance(value, str) or value[:1] + value[-1:] not in ("[]", "{}"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _text(data: dict[str, Any], name: str) -> str | None:
    """The text of a task: the value of a name, or the only string."""
    texts = [value for value in data.values() if isinstance(value, str)]
    return data[name] if isinstance(data.get(name), str) else texts[0] if len(texts) == 1 else data.get("text")


def _row(name: Any, text: str | None, values: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    if not isinstance(text, str):
        return {}, " has no text, or several: expected one string in data"
    spans: list[list[Any]] = []
    choices: list[str] = []
    for value in values:
        choices += value.get("choices", [])
        labels = value.get("labels") or value.get("hypertextlabels") or []
        if len(labels) > 1:
            return {}, f" has a span with the labels {labels!r:.60}: keep one of them"
        if labels:
            span, problem = span_of(text, value.get("start"), value.get("end"), value.get("text"))
            if problem:
                return {}, problem
            spans.append([*span, str(labels[0])])
    row: dict[str, Any] = {"id": name, "text": text, "spans": spans}
    return row | ({"label": choices} if choices else {}), ""


LABEL_STUDIO = Format("Label Studio", _is_export, translate=_of_export)
LABEL_STUDIO_MIN = Format("Label Studio, JSON-MIN or CSV", _is_min, translate=_of_min)
