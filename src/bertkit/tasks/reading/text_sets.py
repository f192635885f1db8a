"""Reader of rows for sentence encoders: texts, pairs, pairs with scores, triplets, and texts with lists of positives
and negatives; csv, tsv, jsonl and parquet files."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.files import BadRow, BadRows, location
from bertkit.files.labeled_tables import Table, check_roles, needed_text, open_table
from bertkit.files.lines import Line, open_lines
from bertkit.files.tables import Row
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import TextSet
from bertkit.tasks.reading.texts import HEADERLESS_SHAPES, LABELS, TEXT_PAIRS, TEXTS, headerless_columns

ROLES = ("query", "positive", "negative", "score", "scores")
PAIRS = (
    ("anchor", "positive"), ("query", "positive"), ("query", "passage"), ("query", "document"), ("question", "answer"),
    ("query", "answer"), ("query", "positives"), ("anchor", "positives"), *TEXT_PAIRS,
)  # fmt: skip
"""Known column names of a text and its positive, if both exist."""
SCORES = (*LABELS["number"], "is_duplicate", "Quality", "same")
_TEXT_SCORES = ("scores", "teacher_scores")
NEXT = "next"
"""Used instead of a column of positives: the positive of a paragraph is the next paragraph."""
_NEGATIVE = re.compile(r"negatives?(_?\d+)?")
_KNOWN = {*TEXTS, *(name for pair in PAIRS for name in pair), *SCORES}


def read_text_sets(file: ExampleFile) -> Iterator[TextSet]:
    """Read the rows of a file, one at a time.

    Args:
        file: csv, tsv, jsonl or parquet; txt and "-", standard input, have a text on each line. Columns named negative,
            negative_1, negative1, ... hold negatives; in jsonl and parquet a column may hold a list. Its columns are
            names of "query", "positive", "negative", "score" and "scores"; several negatives are negative="a,b", and
            scores is a list with a number for each other text. positive="next" makes pairs of neighboring texts:
            paragraphs of a txt file, separated by empty lines, or rows of a table.

    Raises:
        DataError: no such file, no column for the texts, a bad row, no row at all.
        UsageError: an unknown role.
    """
    path, labeled, columns, bad_rows = file.path, file.labeled, file.columns, file.bad_rows or BadRows()
    check_roles(columns, ROLES)
    if columns.get("positive") == NEXT:
        yield from _neighbors(path, {role: name for role, name in columns.items() if role != "positive"}, bad_rows)
        return
    asked = ",".join(columns.values()).split(",") if columns else []
    with open_table(path, asked, _KNOWN, HEADERLESS_SHAPES) as table:
        query, positive, negatives, score = _choose_columns(table, columns)
        of_texts = table.column("scores", columns.get("scores"), _TEXT_SCORES)
        score, of_texts = (score, of_texts) if labeled else (None, None)

        def text_set(row: Row) -> TextSet:
            further = row.values.keys() - set(table.names)  # of a jsonl object that differs from the first
            others = [] if "negative" in columns else sorted(filter(_NEGATIVE.fullmatch, further))
            if further:
                _check_further(row.values, further, positive, [score, of_texts] if labeled else None)
            fields = _fields(row.values, query, positive, [*negatives, *others], score)
            scores = () if of_texts is None else _scores(row.values.get(of_texts), of_texts)
            return TextSet(*fields, location(path, row.line), scores)

        yield from bad_rows.usable(path, table.rows, text_set)


def _neighbors(path: str | Path, columns: Mapping[str, str], bad_rows: BadRows) -> Iterator[TextSet]:
    """Pairs of each text with the next one."""
    if str(path).endswith(".txt"):
        texts = _paragraphs(path, bad_rows)
    else:
        texts = (
            (row.query, row.location) for row in read_text_sets(ExampleFile(path, columns=columns, bad_rows=bad_rows))
        )
    has_any = False
    for (text, where), (after, _) in pairwise(texts):
        has_any = True
        yield TextSet(text, (after,), location=where)
    if not has_any:
        raise DataError(
            f"{path}: positive=next expects two texts or more; paragraphs of a txt file are separated by empty lines"
        )


def _paragraphs(path: str | Path, bad_rows: BadRows) -> Iterator[tuple[str, str]]:
    """Paragraphs that have letters, with the location of their first line."""
    paragraph: list[Line] = []
    with open_lines(path) as lines:
        for line in chain(lines, [Line(0, "")]):
            if line.invalid:
                bad_rows.add(path, line.number, line.invalid, {"text": line.content})
            elif line.text.strip():
                paragraph.append(line)
            elif paragraph:
                text, first, paragraph = " ".join(one.text.strip() for one in paragraph), paragraph[0].number, []
                if any(character.isalpha() for character in text):
                    yield text, location(path, first)


def _choose_columns(table: Table, columns: Mapping[str, str]) -> tuple[str, str | None, list[str], str | None]:
    """The columns of query, positive, negatives and score."""
    if not columns and (shaped := headerless_columns(table.names)):
        return shaped["text"], shaped.get("pair"), [], shaped["label"]
    pair = None if "query" in columns else table.pair(("query", "positive"), PAIRS)
    query = table.require("query", columns.get("query") or (pair or (None,))[0], TEXTS)
    positive = columns.get("positive") or (pair[1] if pair else None)
    if positive is not None:
        table.require("positive", positive, ())
    negatives = [name for name in table.names if _NEGATIVE.fullmatch(name)]
    if "negative" in columns:
        negatives = columns["negative"].split(",")
        for name in negatives:
            table.require("negative", name, ())
    free = [name for name in SCORES if name not in (query, positive)]  # "target" may be a text
    score = table.column("score", columns.get("score"), free) if positive is not None else None
    return query, positive, negatives, score


def _check_further(
    values: Mapping[str, Any], further: Set[str], positive: str | None, scores: Sequence[str | None] | None
) -> None:
    """Raise a BadRow for an object with a pair or scores where the first object has none.

    Args:
        scores: the columns of the score and of the scores; None: they are not read.
    """
    if positive is None:
        for names in PAIRS:
            if set(names) <= values.keys():
                problem = (
                    f" has {' and '.join(names)}, but the first row has no pair: expected pairs in all rows or none"
                )
                raise BadRow(problem)
    elif scores == [None, None] and (found := further & {*SCORES, *_TEXT_SCORES}):
        raise BadRow(f" has {min(found)!r}, but the first row has no score: expected scores in all rows or none")


def _fields(
    values: Mapping[str, Any], query: str, positive: str | None, negatives: Sequence[str], score: str | None
) -> tuple[str, tuple[str, ...], tuple[str, ...], float | None]:
    """The first fields of a `TextSet`."""
    text = _filled(values, query)
    positives = [] if positive is None else _texts(values, positive, is_needed=True)
    others = [text for name in negatives for text in _texts(values, name, is_needed=name == positive)]
    number = None if score is None else _score(values.get(score), score)
    if positive is not None and not positives:
        raise BadRow(f" has no positive in {positive!r}: add one, or remove the row")
    if number is not None and (len(positives) != 1 or others):
        raise BadRow(f" has a score and {len(positives) + len(others)} other texts: expected a pair")
    return text, tuple(positives), tuple(others), number


def _filled(values: Mapping[str, Any], name: str) -> str:
    text = needed_text(values, name)
    if not text.strip():
        raise BadRow(f" has an empty text in {name!r}: fill it in, or remove the row")
    return text


def _texts(values: Mapping[str, Any], name: str, *, is_needed: bool) -> list[str]:
    value = values.get(name)
    if isinstance(value, list):
        return [text for text in [needed_text({name: part}, name) for part in value] if text.strip()]
    return [] if not is_needed and (value is None or value == "") else [_filled(values, name)]


def _score(value: Any, name: str) -> float:
    try:
        number = float("nan" if value is None else value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        problem = f" has the score {value!r:.40} in {name!r}: expected a number; fill it in, or remove the row"
        raise BadRow(problem + ("; for pairs with classes use siamese-classification" if name == "label" else ""))
    return number


def _scores(value: Any, name: str) -> tuple[float, ...]:
    """The numbers of a list, () if it is absent."""
    if value is None or value == "":
        return ()
    return tuple(_score(part, name) for part in (value if isinstance(value, list) else [value]))
