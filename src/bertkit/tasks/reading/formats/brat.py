"""brat's standoff format: a folder of texts, each with annotations of the same name: doc.txt and doc.ann."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertkit.files import extension
from bertkit.files.tables import Row
from bertkit.tasks.reading.formats.format import Format, Sample
from bertkit.tasks.reading.formats.spans import span_of


def _is_brat(sample: Sample) -> bool:
    if sample.path.is_dir():
        return any(sample.path.rglob("*.ann"))
    return extension(sample.path) == ".ann" or (
        extension(sample.path) == ".txt" and sample.path.with_suffix(".ann").is_file()
    )


def _rows(path: Path) -> Iterator[Row]:
    for annotations in sorted(path.rglob("*.ann")) if path.is_dir() else [path.with_suffix(".ann")]:
        try:
            text = annotations.with_suffix(".txt").read_bytes().decode("utf-8-sig")
            lines = annotations.read_bytes().decode("utf-8-sig").splitlines()
        except FileNotFoundError as error:
            yield Row(1, problem=f": there is no {Path(error.filename).name} beside it", path=str(annotations))
            continue
        except UnicodeDecodeError:
            yield Row(1, problem=" or its text is not UTF-8: convert both files", path=str(annotations))
            continue
        spans: list[list[Any]] = []
        values, problem, line_number = {"id": annotations.stem, "text": text, "spans": spans}, "", 1
        for number, line in enumerate(lines, start=1):
            if line.startswith("T") and not problem:  # others are relations, events, attributes and notes
                (span, problem), line_number = _entity(line, text), number
                spans.append(span)
        yield Row(line_number if problem else 1, {} if problem else values, problem, path=str(annotations))


def _entity(line: str, text: str) -> tuple[list[Any], str]:
    """T1, a tab, PER 0 3, a tab, Ada."""
    _, _, rest = line.partition("\t")
    place, _, expected = rest.partition("\t")
    if ";" in place:
        return [], f" has an entity in several parts, {place!r:.40}, which tags cannot express: join or remove them"
    name, *numbers = place.split(" ")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return [], f" is not an entity of brat, such as T1, PER 0 3 and Ada with tabs between them: {line!r:.60}"
    span, problem = span_of(text, int(numbers[0]), int(numbers[1]), expected or None)
    return [*span, name], problem


BRAT = Format("brat standoff", _is_brat, _rows)
