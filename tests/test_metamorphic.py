"""Answers do not depend on what stands beside them: each case asks again in another way, and the bits must be equal.

A case is a text, of which entities, relations or a redaction are known; it is read again in another batch, at another
place of a stream, beside other texts in capitals and small letters, with labels in another order, or in other pieces.
Run this file with a number of cases, and names of kinds, to try more: ``python tests/test_metamorphic.py 100000``.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gliner2_reference
import numpy as np
import pytest
from gliner_reference import LABELS, RELATIONS, STORED, write_model
from planted_identifiers import document

from bertkit.extraction import Schema, SchemaExtractor, open_extractor
from bertkit.redaction import Redactor
from bertkit.redaction import redactor as redaction

PUBLISHED = json.loads(STORED.read_text())
PUBLISHED_SCHEMAS = json.loads(gliner2_reference.STORED.read_text())
WORDS = "Ann Bern zoo river old near was in the a of well-known years, (e-mail) 12 bernann RIVER Zoo".split()
NUM_TEXTS = 400
FEW, MANY = 240, 12_000
"""Cases of each kind in the quick and in the slow suite."""


def shuffled(draw: np.random.Generator, names: Sequence[Any]) -> list[Any]:
    return [names[index] for index in draw.permutation(len(names))]


def extraction(folder: Path, schema: Schema) -> Callable[[np.random.Generator, Sequence[str]], list[Any]]:
    """A function that reads texts in parts, with the names of the schema in a new order each time."""
    extractor = open_extractor(folder)

    def read(draw: np.random.Generator, texts: Sequence[str]) -> list[Any]:
        given = Schema(
            shuffled(draw, schema.entities),
            {name: shuffled(draw, schema.records[name]) for name in shuffled(draw, list(schema.records))},
            shuffled(draw, schema.relations),
        )
        if isinstance(extractor, SchemaExtractor) or schema.relations:
            return [sorted_records(each) for each in extractor.read_stream(iter(texts), given, threshold=0.45)]
        return list(extractor.extract_stream(iter(texts), given.entities, threshold=0.45))

    return read


def sorted_records(reading: Any) -> Any:
    return reading.entities, reading.relations, sorted((name, *rows) for name, rows in reading.records.items())


def different_extractions(read: Callable[..., list[Any]], seed: int, num_cases: int) -> int:
    """The number of cases in which a text is read otherwise than alone; each row of a batch is a case."""
    draw, count = np.random.default_rng(seed), min(NUM_TEXTS, num_cases // 8) // 2
    lengths = np.where(draw.random(count) < 0.04, draw.integers(50, 130, count), draw.integers(0, 13, count))
    texts = [" ".join(draw.choice(WORDS, length)) for length in lengths]
    texts += [text.swapcase() for text in texts]
    expected = [read(draw, [text])[0] for text in texts]
    assert len({str(each) for each in expected}) > count / 3, "the model says something"
    done = different = 0
    while done < num_cases:
        order = draw.permutation(count)[: draw.integers(1, count)]
        order += count * (draw.random(len(order)) < draw.choice([0.0, 0.5, 1.0]))  # in the other case
        results = read(draw, [texts[index] for index in order])
        different += sum(result != expected[index] for result, index in zip(results, order, strict=True))
        done += len(results)
    return different


def different_redactions(seed: int, num_cases: int) -> int:
    """The number of cases in which a text is redacted otherwise than in one piece."""
    rng, redactor, different = random.Random(seed), Redactor(), 0
    texts = list[str]()
    for number in range(num_cases):
        if number % 20 == 0:
            noise = "".join(rng.choices(' \n-.()+0123456789@:aA[]\\"', k=60))
            texts = [document(rng.randrange(10**9)).text, noise, document(rng.randrange(10**9)).text]
            text = "".join(texts)
            expected = "".join(redactor.redact_stream([text]))
        different += "".join(redactor.redact_stream(pieces(text, rng))) != expected
    return different


def pieces(text: str, rng: random.Random) -> Iterator[str]:
    """A text in a few pieces."""
    cuts = sorted({0, len(text), *(rng.randrange(len(text) + 1) for _ in range(rng.randint(1, 4)))})
    for start, end in pairwise(cuts):
        yield text[start:end]


def kinds(folder: Path) -> Iterator[tuple[str, Callable[[int, int], int]]]:
    """Name and function of each kind of case."""

    def of_model(path: Path, schema: Schema) -> Callable[[int, int], int]:
        return lambda seed, number: different_extractions(extraction(path, schema), seed, number)

    for name, model in PUBLISHED.items():
        relations = RELATIONS if "relation" in name else ()
        yield name, of_model(write_model(model, folder / name), Schema(LABELS, relations=relations))
    for name, model in PUBLISHED_SCHEMAS.items():
        schema = Schema(LABELS, gliner2_reference.RECORDS, list(gliner2_reference.RELATIONS))
        yield f"schema-{name}", of_model(write_model(model, folder / f"schema-{name}"), schema)
    yield "redaction", different_redactions


NAMES = [*PUBLISHED, *(f"schema-{name}" for name in PUBLISHED_SCHEMAS), "redaction"]


@pytest.mark.parametrize("num_cases", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_answers_are_the_same_beside_anything(monkeypatch, tmp_path: Path, name: str, num_cases: int) -> None:
    monkeypatch.setattr(redaction, "_AT_ONCE", 1)  # search after every piece
    assert dict(kinds(tmp_path))[name](num_cases, num_cases) == 0


def main() -> None:
    redaction._AT_ONCE = 1
    number, names = int(sys.argv[1]), sys.argv[2:] or NAMES
    with tempfile.TemporaryDirectory() as folder:
        functions = dict(kinds(Path(folder)))
        for name in names:
            start = time.process_time()
            different = functions[name](1, number)
            print(f"{name}: {number:,} cases, {different} differences, {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
