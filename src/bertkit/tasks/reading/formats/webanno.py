"""WebAnno TSV 3, which INCEpTION exports: a token on each line, with the spans of each layer in columns."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.files.lines import open_lines
from bertkit.files.tables import Row
from bertkit.tasks.reading.formats.format import Format

_START = "#FORMAT=WebAnno TSV 3"
_NUMBERED = re.compile(r"(.*)\[(\d+)\]")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r"}
_ENTITIES = "NamedEntity"


def _rows(path: Path) -> Iterator[Row]:
    layers: list[str] = []
    column: int | None = None
    text, tokens, first, problem = "", [], 1, ""
    with open_lines(path) as lines:
        for line in lines:
            content = line.content
            if content.startswith("#T_SP="):
                layers.append(content.removeprefix("#T_SP="))
            elif content.startswith("#Text="):
                if not tokens:
                    text, first = text + ("\n" if text else "") + content.removeprefix("#Text="), line.number
            elif re.match(r"\d+-\d+\t", content):
                column = _entity_column(path, layers) if column is None else column
                fields = content.split("\t")
                problem = problem or line.invalid or ("" if len(fields) > column else f" has no column {column + 1}")
                tokens.append((fields[2], _unescaped(fields[column]) if len(fields) > column else "_"))
            elif not content.strip() and tokens:
                yield _sentence(first, _unescaped(text), tokens, problem)
                text, tokens, problem = "", [], ""
    if tokens:
        yield _sentence(first, _unescaped(text), tokens, problem)


def _entity_column(path: Path, layers: list[str]) -> int:
    """The index of the column with the labels of entities; of several layers that of named entities."""
    sizes = [layer.split("|") for layer in layers]
    named = [number for number, (layer, *_) in enumerate(sizes) if _ENTITIES in layer] or list(range(len(layers)))
    if len(named) != 1:
        raise DataError(f"{path} has the layers {', '.join(layers) or 'of no spans'}: expected one, or {_ENTITIES}")
    features = sizes[named[0]][1:]
    before = sum(max(len(names) - 1, 1) for names in sizes[: named[0]])
    return 3 + before + (features.index("value") if "value" in features else 0)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[0], match[1]), text)


def _sentence(line: int, text: str, tokens: list[tuple[str, str]], problem: str) -> Row:
    words: list[list[int]] = []
    spans: dict[Any, list[Any]] = {}
    for number, (token, labels) in enumerate(tokens):
        word = _unescaped(token)
        start = text.find(word, words[-1][1] if words else 0)
        if start < 0:
            return Row(line, problem=problem or f": the token {word!r:.40} is not in its text")
        words.append([start, start + len(word)])
        for label in labels.split("|"):
            if label in ("_", ""):
                continue
            match = _NUMBERED.fullmatch(label)
            key = (match[1], match[2]) if match else (label, f"token {number}")
            spans.setdefault(key, [start, 0, key[0]])[1] = start + len(word)
    if "*" in {name for name, _ in spans}:
        problem = problem or " has a span without a label, '*': label it, or remove it"
    return Row(line, {} if problem else {"text": text, "word_spans": words, "spans": list(spans.values())}, problem)


WEBANNO = Format("WebAnno TSV 3", lambda sample: sample.text.startswith(_START), _rows)
