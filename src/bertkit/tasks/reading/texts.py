"""Reader of texts and pairs with labels, for classification and regression: csv, tsv, jsonl and parquet files.

Columns are identified by name, unless the caller names them. Without a header, the formats of three
published files are known: STS benchmark (number in column 5 of 7, texts in 6 and 7), the yearly STS files (1 of 3; 2
and 3) and CoLA (2 of 4; 4).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.files import BadRow, BadRows, extension, location
from bertkit.files.labeled_tables import WITH_TABS, Table, check_roles, id_of, needed_text
from bertkit.files.tables import Row
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import Label, TextExample
from bertkit.tasks.reading.formats import open_rows
from bertkit.tasks.reading.labels import LabelKind, LabelsOfFile

TEXT_ROLES = ("text", "pair", "label")

TEXT_PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("sentence_A", "sentence_B"), ("#1 String", "#2 String"), ("text_a", "text_b"), ("text", "pair"),
)  # fmt: skip
"""Known column names of a text and its pair, if both exist."""

TEXTS = ("text", "sentence", "content", "tweet", "review")
"""Known column names of a single text."""

LABELS: Mapping[LabelKind, tuple[str, ...]] = {
    "class": (
        "label", "category", "sentiment", "class", "intent", "gold_label", "entailment_judgment", "Quality",
        "is_duplicate",
    ),
    "set": ("labels", "label"),
    "number": ("score", "similarity", "relatedness_score", "label", "target", "rating"),
}  # fmt: skip
"""Known column names of a label."""

HEADERLESS_SHAPES = {7: 5, 9: 5, 3: 1, 4: 2}
"""Number of columns of published files without a header -> the column with a number."""
_SHAPED = {7: ("6", "7", "5"), 9: ("6", "7", "5"), 3: ("2", "3", "1"), 4: ("4", None, "2")}
_KNOWN = {*TEXTS, *(name for pair in TEXT_PAIRS for name in pair), *(name for kind in LABELS.values() for name in kind)}


def read_labeled_texts(
    path: str | Path,
    kind: LabelKind | None,
    *,
    columns: Mapping[str, str] = {},
    label_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    label_separator: str | None = None,
    bad_rows: BadRows | None = None,
) -> Iterator[TextExample]:
    """Read the rows of a file as examples, one at a time.

    Args:
        path: csv, tsv, jsonl or parquet; also txt and "-", standard input, for texts without labels, one on each line.
        kind: kind of the labels; None: labels are not read, and a text may be empty.
        columns: names by role, "text", "pair" and "label", if the names are not recognized. A set may be
            in one column, as "a|b" or a list; or in several columns of 0 and 1, label="a,b,c".
        label_names: allowed labels; None: any.
        class_names: names of labels that the file has as integers from 0.
        label_separator: between the labels of a set in one column; None: identified from all of them.
        bad_rows: receives unusable rows, and notes; None: such a row is an error.

    Raises:
        DataError: no such file, no column for text or label, a bad row, no row at all.
        UsageError: an unknown role.
    """
    options = {"label_separator": label_separator}
    file = ExampleFile(path, kind is not None, columns, label_names, bad_rows, options, class_names)
    return read_labeled_file(file, kind)


def read_labeled_file(file: ExampleFile, kind: LabelKind | None) -> Iterator[TextExample]:
    """As `read_labeled_texts`; "label_separator" is an option of the file."""
    path, columns, bad_rows = file.path, file.columns, file.bad_rows or BadRows()
    check_roles(columns, TEXT_ROLES)
    if kind is None:
        columns = {role: name for role, name in columns.items() if role != "label"}
    is_tsv, is_txt = extension(path) == ".tsv", extension(path) == ".txt"
    asked = ",".join(columns.values()).split(",") if columns else []
    with open_rows(path, asked, _KNOWN, HEADERLESS_SHAPES, lambda sentence: bad_rows.note(path, sentence)) as table:
        chosen = choose_columns(table, kind, columns)
        rows: Iterable[Row] = table.rows
        labels: Counter[Any] = Counter()
        if kind in ("class", "set"):
            rows = list(rows)
            values = (row.values.get(chosen["label"]) for row in rows)
            if kind == "set":
                values = (tuple(map(str, value)) if isinstance(value, list) else value for value in values)
            labels = Counter(value for value in values if isinstance(value, str | int | float | tuple))
        of_file = LabelsOfFile(kind, labels, file)

        def example(row: Row) -> TextExample:
            if not {"text", "pair"} & set(columns):
                _check_pair(row.values, chosen)
            text, pair, label = _fields(row.values, chosen, of_file)
            if is_tsv and len(text) > 1 and text[0] == text[-1] == '"' and '""' in text[1:-1]:
                bad_rows.note(path, "texts are in quotes, which are text in a tsv file: save it as csv", 1)
            if is_txt and "\t" in text:
                bad_rows.note(path, WITH_TABS)
            return TextExample(text, pair, label, location(row.path or path, row.line), id_of(row.values))

        yield from bad_rows.usable(path, rows, example)
    for sentence, number in of_file.notes.items():
        bad_rows.note(path, sentence, number)


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
    if chosen["label"] in (chosen["text"], chosen.get("pair")):
        raise DataError(f"{table.path}: the label and a text are in {chosen['label']!r}: choose two columns")
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


def _check_pair(values: Mapping[str, Any], chosen: Mapping[str, str]) -> None:
    """Raise a BadRow for an object with a pair if the first object has a single text."""
    for text, pair in () if "pair" in chosen else TEXT_PAIRS:
        if text in values and pair in values:
            raise BadRow(
                f" has {text!r} and {pair!r}, but the first row has no pair: expected pairs in all rows or none"
            )


def _fields(
    values: Mapping[str, Any], chosen: Mapping[str, str], labels: LabelsOfFile
) -> tuple[str, str | None, Label | None]:
    """Text, pair and label of a row."""
    text = needed_text(values, chosen["text"])
    pair = needed_text(values, chosen["pair"]) if "pair" in chosen else None
    if labels.kind is None:
        return text, pair, None
    for name, part in ((chosen["text"], text), (chosen.get("pair", ""), pair)):
        if part is not None and not part.strip():
            raise BadRow(f" has an empty text in {name!r}: fill it in, or remove the row")
    return text, pair, labels.read(values, chosen["label"])
