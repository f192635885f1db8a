"""Word benchmarks: rated pairs and analogies, as csv files with a header.

Pairs have the columns word1, word2 and similarity (WordSim-353, SimLex-999, MEN, ...); analogies have type, word1,
word2, word3 and target: word1 is to word2 as word3 to target (Google, MSR). A first column without a name is ignored.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.errors import DataError
from bertkit.files.lines import location, open_lines
from bertkit.files.tables import header_of, named_rows, quoted_fields
from bertkit.tasks.metrics import spearman
from bertkit.words.encoder import StaticEncoder
from bertkit.words.queries import best_rows, unit

_PART_OF_SPEECH = re.compile(r"-[nvaj]$")
_PAIRS, _ANALOGIES = {"word1", "word2", "similarity"}, {"word1", "word2", "word3", "target"}
_QUESTIONS_AT_A_TIME = 512


class BenchmarkScore(NamedTuple):
    """The score of a file or of a section of it."""

    benchmark: str
    section: str  # "all" for the whole file
    metric: str  # "spearman", or "accuracy" of the nearest word, excluding the three of the question
    value: float  # NaN where too few rows are covered
    num_covered: int  # rows whose words all have vectors; the others are ignored
    num_rows: int


def score_benchmark(encoder: StaticEncoder, path: Path) -> list[BenchmarkScore]:
    """Score word vectors on a benchmark file: one score for rated pairs; for analogies one per section and one for all.

    Words are looked up as by `StaticEncoder.find_row`; the suffixes "-n", "-v", "-a", "-j" of MEN are removed.

    Raises:
        DataError: a file with other columns or not in UTF-8, or a row without its words or a finite rating.
    """
    rows = list(_rows(path))
    columns = set(rows[0][1]) if rows else set()
    if columns >= _ANALOGIES:
        return _score_analogies(encoder, path, [row for _, row in rows])
    if columns >= _PAIRS:
        return [_score_pairs(encoder, path, rows)]
    raise DataError(
        f"{path} has the columns {', '.join(sorted(columns)) or 'none'}: expected word1, word2, similarity, or word1, "
        "word2, word3 and target"
    )


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    with open_lines(path) as lines:
        fields = quoted_fields(lines)
        header = header_of(path, fields)
        for row in named_rows(fields, header.fields, ",", quoted=True):
            values = {name: value.strip() for name, value in row.values.items() if name}
            if problem := row.problem or row.invalid:
                raise DataError(location(path, row.line) + problem)
            if not any(values.values()):  # some files end with an empty row
                continue
            for name in ("word1", "word2", "word3", "target"):
                if not values.get(name, name):
                    raise DataError(f"{location(path, row.line)} has no {name}: add it, or remove the row")
            yield row.line, values


def _score_pairs(encoder: StaticEncoder, path: Path, rows: list[tuple[int, dict[str, str]]]) -> BenchmarkScore:
    ratings, cosines = [], []
    for line, row in rows:
        try:
            rating = float(row["similarity"])
        except ValueError:
            rating = math.nan
        if not math.isfinite(rating):
            raise DataError(f"{location(path, line)}: similarity is {row['similarity']!r}, expected a finite number")
        words = [_PART_OF_SPEECH.sub("", row[name]) for name in ("word1", "word2")]
        indices = [encoder.find_row(word) for word in words]
        if min(indices) >= 0:
            first, second = unit(encoder.vectors[indices])
            ratings.append(rating)
            cosines.append(float(first @ second))
    return BenchmarkScore(path.stem, "all", "spearman", spearman(ratings, cosines), len(ratings), len(rows))


def _score_analogies(encoder: StaticEncoder, path: Path, rows: list[dict[str, str]]) -> list[BenchmarkScore]:
    names = ("word1", "word2", "word3", "target")
    indices = np.array([[encoder.find_row(row[name]) for name in names] for row in rows])
    covered = (indices >= 0).all(axis=1)
    correct = np.zeros(len(rows), np.bool_)
    known = np.flatnonzero(covered)
    for start in range(0, len(known), _QUESTIONS_AT_A_TIME):
        part = known[start : start + _QUESTIONS_AT_A_TIME]
        a, b, c = (unit(encoder.vectors[indices[part, column]]) for column in range(3))
        near = best_rows(encoder, b - a + c, 4)[1]
        asked = (near[:, :, None] == indices[part, None, :3]).any(axis=2)
        first = near[np.arange(len(part)), asked.argmin(axis=1)]
        correct[part] = first == indices[part, 3]
    sections = [row.get("type", "all") for row in rows]
    scores = []
    for name in [*dict.fromkeys(sections), *(["all"] if len(set(sections)) > 1 else [])]:
        chosen = np.array([name in ("all", section) for section in sections])
        counted = chosen & covered
        value = float(correct[counted].mean()) if counted.any() else float("nan")
        scores.append(BenchmarkScore(path.stem, name, "accuracy", value, int(counted.sum()), int(chosen.sum())))
    return scores
