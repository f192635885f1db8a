"""Reader of texts and pairs with labels, for classification and regression: csv, tsv, jsonl and parquet files.

Columns are identified by name, unless the caller names them. Without a header, the formats of three
published files are known: STS benchmark (number in column 5 of 7, texts in 6 and 7), the yearly STS files (1 of 3; 2
and 3) and CoLA (2 of 4; 4).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bertkit.errors import DataError
from bertkit.files import BadRows, location
from bertkit.files.labeled_tables import Table, check_roles, id_of, open_table, text_of, unknown_label
from bertkit.tasks.examples import TextExample

LabelKind = Literal["class", "set", "number"]
"""Kind of label: one name, any number of names, or a real number."""

TEXT_ROLES = ("text", "pair", "label")

TEXT_PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("sentence_A", "sentence_B"), ("#1 String", "#2 String"), ("text_a", "text_b"), ("text", "pair"),
)  # fmt: skip
"""Known column names of a text and its pair, if both exist."""

TEXTS = ("text", "sentence", "content", "tweet", "review")
"""Known column names of a single text."""

LABELS: Mapping[LabelKind, tuple[str, ...]] = {
    "class": ("label", "category", "sentiment", "class", "intent", "gold_label", "entailment_judgment", "Quality"),
    "set": ("labels", "label"),
    "number": ("score", "similarity", "relatedness_score", "label", "target", "rating"),
}
"""Known column names of a label."""

HEADERLESS_SHAPES = {7: 5, 9: 5, 3: 1, 4: 2}
"""Number of columns of published files without a header -> the column with a number."""
_SHAPED = {7: ("6", "7", "5"), 9: ("6", "7", "5"), 3: ("2", "3", "1"), 4: ("4", None, "2")}
_KNOWN = {*TEXTS, *(name for pair in TEXT_PAIRS for name in pair), *(name for kind in LABELS.values() for name in kind)}
_AGREED = "gold_label"  # of SNLI and MultiNLI, where "-" means that the annotators did not agree
_SEPARATOR = "|"  # between the names of a set in one column


def read_labeled_texts(
    path: str | Path,
    kind: LabelKind | None,
    *,
    columns: Mapping[str, str] = {},
    label_names: Sequence[str] | None = None,
    bad_rows: BadRows | None = None,
) -> Iterator[TextExample]:
    """Read the rows of a file as examples, one at a time.

    Args:
        path: csv, tsv, jsonl or parquet; also txt and "-", standard input, for texts without labels, one on each line.
        kind: kind of the labels; None: labels are not read, and a text may be empty.
        columns: names by role, "text", "pair" and "label", if the names are not recognized. A set may be
            in one column, "a|b", in jsonl also in a list; or in several columns of 0 and 1, label="a,b,c".
        label_names: allowed labels; None: any.
        bad_rows: receives unusable rows; None: such a row is an error.

    Raises:
        DataError: no such file, no column for text or label, a bad row, no row at all.
        UsageError: an unknown role.
    """
    bad_rows = bad_rows or BadRows()
    check_roles(columns, TEXT_ROLES)
    if kind is None:
        columns = {role: name for role, name in columns.items() if role != "label"}
    has_any = False
    asked = ",".join(columns.values()).split(",") if columns else []
    with open_table(path, asked, _KNOWN, HEADERLESS_SHAPES) as table:
        chosen = choose_columns(table, kind, columns)
        for row in table.rows:
            example, problem = None, row.problem
            if not problem and not {"text", "pair"} & set(columns):
                problem = _further_pair(row.values, chosen)
            if not problem:
                example, problem = _example(row.values, chosen, kind, label_names)
            if example is None:
                bad_rows.add(path, row.line, problem, dict(row.values))
                continue
            text, pair, label = example
            has_any = True
            yield TextExample(text, pair, label, location(path, row.line), id_of(row.values))
    if not has_any:
        raise bad_rows.none_left(path)


def choose_columns(table: Table, kind: LabelKind | None, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns by role, "pair" only if there is one, "label" only if ``kind`` is given.

    Raises:
        DataError: no column for text or label, or several.
    """
    chosen = dict(columns)
    if not columns:
        chosen |= headerless_columns(table.names)
    if not {"text", "pair"} & set(chosen) and (pair := table.pair(("text", "pair"), TEXT_PAIRS)):
        chosen |= {"text": pair[0], "pair": pair[1]}
    chosen["text"] = table.require("text", chosen.get("text"), TEXTS)
    if "pair" in chosen:
        table.require("pair", chosen["pair"], ())
    if kind is None:
        chosen.pop("label", None)
        return chosen
    if kind == "set" and "," in chosen.get("label", ""):
        for name in chosen["label"].split(","):
            table.require("label", name, ())
    else:
        chosen["label"] = table.require("label", chosen.get("label"), LABELS[kind])
    return chosen


def check_label_columns(examples: Sequence[TextExample], columns: Mapping[str, str]) -> None:
    """Check that each of several label columns is 1 in a training row.

    Raises:
        DataError: a column with 0 in every row.
    """
    names = columns.get("label", "").split(",")
    known = {name for one in examples for name in (one.label if isinstance(one.label, tuple) else ())}
    if len(names) > 1 and (absent := [name for name in names if name not in known]):
        raise DataError(
            f"no training row has 1 in {', '.join(absent)}: omit such columns, or add rows with these labels"
        )


def headerless_columns(names: Sequence[str]) -> dict[str, str]:
    """Columns by role of a published file without a header; {} for other files."""
    if tuple(names[:1]) != ("1",) or len(names) not in _SHAPED:
        return {}
    text, pair, label = _SHAPED[len(names)]
    return {"text": text, "label": label} | ({"pair": pair} if pair else {})


def _further_pair(values: Mapping[str, Any], chosen: Mapping[str, str]) -> str:
    """Problem of an object with a pair if the first object has a single text."""
    if "pair" not in chosen:
        for text, pair in TEXT_PAIRS:
            if text in values and pair in values:
                return f" has {text!r} and {pair!r}, but the first row has no pair: expected pairs in all rows or none"
    return ""


def _example(
    values: Mapping[str, Any], chosen: Mapping[str, str], kind: LabelKind | None, label_names: Sequence[str] | None
) -> tuple[tuple[str, str | None, str | tuple[str, ...] | float | None] | None, str]:
    """Text, pair and label of a row; or None and a problem."""
    text, problem = text_of(values, chosen["text"])
    pair = None
    if "pair" in chosen and not problem:
        pair, problem = text_of(values, chosen["pair"])
    if problem or kind is None:
        return (None, problem) if problem else ((text, pair, None), "")
    if not text.strip():
        return None, f" has an empty text in {chosen['text']!r}: fill it in, or remove the row"
    if pair is not None and not pair.strip():
        return None, f" has an empty text in {chosen['pair']!r}: fill it in, or remove the row"
    if kind == "set" and "," in chosen["label"]:
        label, problem = _set_of_columns(values, chosen["label"].split(","))
    else:
        label, problem = _READ[kind](values.get(chosen["label"]), chosen["label"])
    if problem:
        return None, problem
    if label_names is not None and not isinstance(label, float):
        for name in (label,) if isinstance(label, str) else label or ():
            if name not in label_names:
                return None, unknown_label(name, label_names)
    return (text, pair, label), ""


def _class(value: Any, name: str) -> tuple[str, str]:
    if isinstance(value, str):
        value = value.strip()
    elif isinstance(value, int):  # true and false too, in JSON
        value = str(value)
    if value is None or value == "":
        return "", f" has the label {value!r} in {name!r}: expected a name; fill it in, or remove the row"
    if not isinstance(value, str):
        return "", f" has the label {value!r:.40} in {name!r}: expected a name or an integer; convert the labels"
    if name == _AGREED and value == "-":
        return "", f" has '-' in {name!r}: the annotators did not agree on a label; remove the row, or skip such rows"
    return value, ""


def _number(value: Any, name: str) -> tuple[float, str]:
    try:
        number = float("nan" if value is None or isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not math.isfinite(number):
        decimal = "write decimals with a point, " if isinstance(value, str) and "," in value else ""
        return (
            0.0,
            f" has the target {value!r:.40} in {name!r}: expected a number; {decimal}fill it in, or remove the row",
        )
    return number, ""


def _set(value: Any, name: str) -> tuple[tuple[str, ...], str]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(_SEPARATOR)] if value.strip() else []
    if not isinstance(value, list) or not all(isinstance(part, str) and part for part in value):
        return (), f" has the labels {value!r:.40} in {name!r}: expected names, as a|b or in a list"
    if len(set(value)) < len(value):
        return (), f" has a label twice in {name!r}: {value!r:.60}"
    return tuple(value), ""


def _set_of_columns(values: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    for name in names:
        if str(values.get(name)) not in ("0", "1"):
            return (), f" has {values.get(name)!r:.40} in {name!r}: expected 0 or 1"
    return tuple(name for name in names if str(values[name]) == "1"), ""


_READ = {"class": _class, "set": _set, "number": _number}
