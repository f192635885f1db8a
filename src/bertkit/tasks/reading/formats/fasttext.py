"""fastText's format: the labels of a text, each with the prefix __label__, then the text."""

from collections.abc import Iterator
from pathlib import Path

from bertkit.files.lines import open_lines
from bertkit.files.tables import Row
from bertkit.tasks.reading.formats.format import Format, Sample

_PREFIX = "__label__"


def _is_fasttext(sample: Sample) -> bool:
    lines = [line for line in sample.lines[:20] if line.strip()]
    return bool(lines) and sum(line.startswith(_PREFIX) for line in lines) > len(lines) / 2


def _rows(path: Path) -> Iterator[Row]:
    with open_lines(path) as lines:
        for line in lines:
            words = line.content.split()
            if not words:
                continue
            labels = [word.removeprefix(_PREFIX) for word in words if word.startswith(_PREFIX)]
            text = " ".join(word for word in words if not word.startswith(_PREFIX))
            problem = line.invalid or ("" if labels else f" has no label, which begins with {_PREFIX}")
            yield Row(line.number, {} if problem else {"text": text, "label": labels}, problem)


FASTTEXT = Format("fastText", _is_fasttext, _rows)
