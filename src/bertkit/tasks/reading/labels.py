"""Labels of texts in files: one name, several names, or a number."""

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from bertkit.errors import UsageError
from bertkit.files import BadRow
from bertkit.files.labeled_tables import named_classes, unknown_label, whole_number
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import Label

LabelKind = Literal["class", "set", "number"]
"""Kind of label: one name, any number of names, or a real number."""

SEPARATORS = "|;,"
"""Known separators between the names of a set in one column."""

MULTI_LABEL = "multi-label-classification"
"""The task for several labels of a text."""

_AGREED = "gold_label"  # of SNLI and MultiNLI, where "-" means that the annotators did not agree
_IGNORED = "-100"  # in the data of training loops
_MISSING = {"nan", "<na>"}  # in tables of pandas
_NOTHING = {"", "none", "null", "n/a", "set()", *_MISSING}  # no label in a set
_DOUBTFUL = {"-1", "?", "na", "#n/a", *_NOTHING} - {""}  # perhaps no label, perhaps a class
_YES, _NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}
_PUBLISHED = re.compile(r"LABEL_(\d+)")
_NUMPY_LIST = re.compile(r"\[\s*('[^']*'|\"[^\"]*\")(\s+('[^']*'|\"[^\"]*\"))*\s*\]")


class LabelsOfFile:
    """Reader of the labels of one file.

    Args:
        kind: None: labels are not read.
        values: the number of rows with each value of the column, by which separators and the ways of writing "no label"
            are identified.
        file: its label names, class names and option "label_separator" are as in `read_labeled_texts`.

    Attributes:
        notes: what was guessed, with the number of rows, or 0.

    Raises:
        UsageError: a separator without characters.
    """

    def __init__(self, kind: LabelKind | None, values: Mapping[Any, int], file: ExampleFile) -> None:
        label_names, class_names = file.label_names, file.class_names
        self.kind, self.label_names, self.class_names = kind, label_names, class_names
        self.notes: Counter[str] = Counter()
        self._is_published = bool(label_names) and all(map(_PUBLISHED.fullmatch, label_names or ()))
        self._nothing = ways_of_nothing(values, class_names) if kind == "class" else set()
        for value, number in values.items() if kind == "class" else ():
            name = str(value).strip()
            if name.lower() in _DOUBTFUL and name not in self._nothing:
                self.notes[
                    f"rows have the label {name}, which counts as a class: remove them if it means no label"
                ] += number
        texts = [str(value) for value in values if isinstance(value, str)]
        lists = [text for text in texts if "|" in text or items_in(text.strip())]
        if kind == "class" and lists and not (label_names and set(lists) <= set(label_names)):
            self.notes[f"labels such as {lists[0]!r:.40} count as one class each: for several use {MULTI_LABEL}"] = 0
        self._has_bits = kind == "set" and class_names is not None and _are_bits(values, len(class_names))
        if self._has_bits:
            self.notes["labels are lists of 0 and 1, one for each of the names"] = 0
        self._separator: str | None = file.options.get("label_separator")
        if self._separator == "":
            raise UsageError("label_separator='': expected the characters between two labels")
        if kind == "set" and self._separator is None:
            self._separator = self._found_separator([value for value in values if isinstance(value, str)])

    def read(self, values: Mapping[str, Any], name: str) -> Label:
        """The label of a row from a column, or from several with commas between their names.

        Raises:
            BadRow: none, or one that cannot be used.
        """
        if self.kind == "number":
            return _number(values.get(name), name)
        if self.kind == "class":
            label: str | tuple[str, ...] = self._class(values.get(name), name)
        elif "," in name:
            label = _set_of_columns(values, name.split(","))
        else:
            label = self._set(values.get(name), name)
        if self.label_names is None:
            return label
        names = [self._known(part) for part in ((label,) if isinstance(label, str) else label)]
        for part in names:
            if part not in self.label_names:
                raise BadRow(unknown_label(part, self.label_names))
        return names[0] if isinstance(label, str) else tuple(names)

    def _known(self, name: str) -> str:
        """The name of a published model that has none for its classes, for the number of a class."""
        if self._is_published and name.isdecimal() and name not in (self.label_names or ()):
            self.notes["labels are numbers, read as LABEL_ and the number: name them with --label-names"] += 1
            return f"LABEL_{int(name)}"
        return name

    def _class(self, value: Any, name: str) -> str:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str):
            value = value.strip()
        if value is None or value == "":
            raise BadRow(f" has the label {value!r} in {name!r}: expected a name; fill it in, or remove the row")
        if name == _AGREED and value == "-":
            advice = "the annotators did not agree on a label; remove the row, or skip such rows"
            raise BadRow(f" has '-' in {name!r}: {advice}")
        if str(value) in self._nothing:
            raise BadRow(f" has {value!r} in {name!r}, which means no label: fill it in, or remove the row")
        if self.class_names is not None:
            return named_classes([value], name, self.class_names)[0]
        if isinstance(value, int):  # true and false too, in JSON
            value = str(value)
        if not isinstance(value, str):
            several = f"; for several labels use {MULTI_LABEL}" if isinstance(value, list) else ""
            problem = f" has the label {value!r:.40} in {name!r}: expected a name or an integer; convert the labels"
            raise BadRow(problem + several)
        return value

    def _set(self, value: Any, name: str) -> tuple[str, ...]:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            value = ""
        if isinstance(value, str):
            if value.strip().lower() in _NOTHING:
                if value.strip():
                    self.notes[f"rows have {value.strip()!r} in {name!r}, which was read as no label"] += 1
                return ()
            value = self._parts(value, name)
        names = self.class_names
        if names is not None and self._has_bits:
            return tuple(label for label, has in zip(names, value, strict=True) if whole_number(has))
        if isinstance(value, list) and value and (names is not None or all(map(_is_number, value))):
            value = named_classes(value, name, names)
        if not isinstance(value, list) or not all(isinstance(part, str) and part.strip() for part in value):
            raise BadRow(f" has the labels {value!r:.40} in {name!r}: expected names, as a|b or in a list")
        value = [part.strip() for part in value]
        if len(set(value)) < len(value):
            raise BadRow(f" has a label twice in {name!r}: {value!r:.60}")
        return tuple(value)

    def _parts(self, value: str, name: str) -> list[Any]:
        """The names of a set that is written as a string."""
        text = value.strip()
        if text[0] + text[-1] in ("[]", "()", "{}"):
            items = items_in(text)
            if items is None:
                expected = "a list of names in JSON or Python, or names as a|b"
                raise BadRow(f" has the labels {text:.40} in {name!r}: expected {expected}")
            self.notes["rows have their labels as a list in text, which was parsed"] += 1
            return items
        if self.label_names is not None and (text in self.label_names or self._separator is None):
            for separator in SEPARATORS:
                if separator in text and text not in self.label_names:
                    return [part.strip() for part in text.split(separator)]
            return [text]
        if self._separator == "?":
            advice = "Choose with label_separator=, such as ',', or '|' for one label"
            raise BadRow(f" has {text!r:.40} in {name!r}: one label, or several? {advice}")
        if self._separator is None:
            return [text]
        return [part.strip() for part in text.split(self._separator)]

    def _found_separator(self, values: Sequence[str]) -> str | None:
        """The separator of the sets of a file; "?" if it is not clear, None without one."""
        plain = [
            text
            for text in (value.strip() for value in values)
            if text and text[0] + text[-1] not in ("[]", "()", "{}")
        ]
        if any("|" in text for text in plain):
            return "|"
        used = [separator for separator in SEPARATORS if any(separator in text for text in plain)]
        if not used or self.label_names is not None:
            return None
        if len(used) > 1:
            return "?"
        counts = Counter(part.strip() for text in plain for part in text.split(used[0]))
        if any(counts[part.strip()] > 1 for text in plain if used[0] in text for part in text.split(used[0])):
            names = sorted(set(counts) - {""})
            shown = ", ".join(names[:8]) + (", ..." if names[8:] else "")
            self.notes[f"labels are separated by {used[0]!r}; {len(names)} labels: {shown}"] = 0
            return used[0]
        return "?"


def ways_of_nothing(values: Iterable[Any], class_names: Sequence[str] | None = None) -> set[str]:
    """Values that mean "no label" among those of a column: "", -100, nan, -1 where no class can have it, and "-" unless
    "+" is another class."""
    names = {str(value).strip() for value in values}
    others = names - {"-", "-1", ""}
    numbers = {int(name) for name in others if re.fullmatch(r"-?\d+", name)}
    has_gap = len(numbers) < len(others) or (bool(numbers) and min(numbers) >= 0 and len(numbers) > 2)
    nothing = {"", _IGNORED, *(name for name in names if name.lower() in _MISSING)}
    if "-1" in names and (class_names is not None or (others and has_gap)):
        nothing.add("-1")
    if "-" in names and others and "+" not in names:
        nothing.add("-")
    return nothing


def _is_number(value: Any) -> bool:
    """Whether a value is the number of a class, not a name such as "1999"."""
    return not isinstance(value, str) and whole_number(value) is not None


def _are_bits(values: Iterable[Any], number: int) -> bool:
    """Whether all values are lists of this many zeros and ones, also in text."""
    texts = (value.strip() if isinstance(value, str) else value for value in values)
    lists = [items_in(text) if isinstance(text, str) else text for text in texts if str(text).lower() not in _NOTHING]
    return bool(lists) and all(
        isinstance(each, list | tuple) and len(each) == number and {*map(whole_number, each)} <= {0, 1}
        for each in lists
    )


def items_in(text: str) -> list[Any] | None:
    """The items of a list in JSON, Python or as numpy prints it; None for other text."""
    if re.fullmatch(r"\[\s*-?\d+(\s+-?\d+)*\s*\]", text):
        return list(map(int, text[1:-1].split()))
    if _NUMPY_LIST.fullmatch(text):
        return [single or double for single, double in re.findall(r"'([^']*)'|\"([^\"]*)\"", text)]
    for parse in (json.loads, ast.literal_eval):
        try:
            items = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(items, list | tuple | set):
            return sorted(items, key=str) if isinstance(items, set) else list(items)
        if items == {}:
            return []
    return None


def _number(value: Any, name: str) -> float:
    try:
        is_number = not (isinstance(value, bool) or (isinstance(value, str) and "_" in value))
        number = float(value) if is_number and value is not None else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        has_comma = isinstance(value, str) and "," in value
        advice = "write decimals with a point, thousands without commas, " if has_comma else ""
        expected = f"expected a number; {advice}fill it in, or remove the row"
        raise BadRow(f" has the target {value!r:.40} in {name!r}: {expected}")
    return number


def _set_of_columns(values: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    labels = []
    for name in names:
        decided = str(values.get(name)).strip().lower()
        if decided not in _YES | _NO:
            raise BadRow(f" has {values.get(name)!r:.40} in {name!r}: expected 0 or 1")
        if decided in _YES:
            labels.append(name)
    return tuple(labels)
