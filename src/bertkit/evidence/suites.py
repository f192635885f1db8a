"""Suites of grammatical minimal pairs from files: BLiMP's jsonl and Zorro's txt."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.corpus.texts import read_texts
from bertkit.errors import DataError, UsageError

_NOT_PARADIGMS = ("license", "licence", "readme", "notice", "citation")
"""Names of txt files that accompany a suite, in any case."""


class MinimalPair(NamedTuple):
    """Two sentences with one difference that makes one of them ungrammatical."""

    good: str
    bad: str


@dataclass(frozen=True)
class Paradigm:
    """Pairs that test one rule of grammar."""

    name: str
    pairs: tuple[MinimalPair, ...]
    term: str | None = None  # the phenomenon, such as "anaphor_agreement"
    field: str | None = None  # the field of linguistics, such as "morphology"; only BLiMP names it


class _Row(NamedTuple):
    paradigm: str
    pair: MinimalPair
    term: str | None
    field: str | None


def read_suite(path: str | Path, limit: int | None = None) -> list[Paradigm]:
    """Read the paradigms of a file, or of all files in a folder, sorted by name.

    - ``.jsonl``, as BLiMP (Warstadt et al. 2020) publishes it: a pair a line, with ``sentence_good``,
      ``sentence_bad``, ``UID`` (the paradigm), ``linguistics_term`` and ``field``.
    - ``.txt``, as Zorro (Huebner et al. 2021) publishes it: the BAD sentence and then the good one, on separate lines;
      the file name is the paradigm, its part before the last hyphen the phenomenon.

    Blank lines are allowed at the end of a file. A LICENSE.txt, README.txt or the like in a folder is not read.

    Args:
        limit: number of pairs of each paradigm to read, from the start; None: all.

    Raises:
        DataError: no such files, or a row that is not a pair.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit}: expected at least 1 pair of each paradigm")
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.stem.lower() not in _NOT_PARADIGMS)
    files = [file for file in files if file.suffix in (".jsonl", ".txt")]
    if not files:
        raise DataError(f"{path} holds no minimal pairs: expected .jsonl files as in BLiMP or .txt files as in Zorro")
    pairs: dict[str, list[MinimalPair]] = {}
    groups: dict[str, tuple[str | None, str | None]] = {}
    for file in files:
        for row in _blimp(file) if file.suffix == ".jsonl" else _zorro(file):
            groups.setdefault(row.paradigm, (row.term, row.field))
            pairs.setdefault(row.paradigm, []).append(row.pair)
    return [Paradigm(name, tuple(pairs[name][:limit]), *groups[name]) for name in pairs]


def _blimp(file: Path) -> Iterator[_Row]:
    content = file.read_bytes().rstrip()
    if not content:
        raise DataError(f"{file} is empty: remove it from the suite")
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        match row:
            case {"sentence_good": str(good), "sentence_bad": str(bad)} if good.strip() and bad.strip():
                name, term = _name(row, "UID") or file.stem, _name(row, "linguistics_term") or _name(row, "term")
                yield _Row(name, MinimalPair(good, bad), term, _name(row, "field"))
            case _:
                raise DataError(
                    f"{file}, line {number} is not a pair: expected a JSON object with the texts sentence_good and "
                    f"sentence_bad, got {line.decode(errors='replace').strip():.60}; correct or remove the line"
                )


def _name(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None


def _zorro(file: Path) -> Iterator[_Row]:
    lines = list(read_texts(file))
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(f"{file} is empty: remove it from the suite")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise DataError(f"{file}, line {number} is blank: expected a sentence; remove the pair it belongs to")
    if len(lines) % 2:
        raise DataError(
            f"{file}, line {len(lines)} has no partner: expected the bad sentence and then the good one, each on "
            "a separate line; add the missing one"
        )
    for bad, good in zip(lines[::2], lines[1::2], strict=True):
        yield _Row(file.stem, MinimalPair(good, bad), file.stem.rpartition("-")[0] or None, None)
