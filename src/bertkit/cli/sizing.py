"""bertkit sizing"""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute
from bertkit.cli.output import Column, emit, note
from bertkit.errors import DependencyError, UsageError

_MOST_TEXTS, _WORDS = 2_000, 25


def command(
    *,
    model: str = EMBEDDING_MODEL,
    input: Annotated[str, Parameter(name=["--input", "-i"])] = "python-docs",
    column: Column = None,
    words: int | None = None,
    within_ms: float = 250.0,
    seconds: float = 5.0,
    compute: Compute = EXACT,
) -> None:
    """Measure how many requests a second a server takes on this machine.

    Starts bertkit serve, and sends requests with one text each at rising rates, until 1 % of them take longer than a
    limit. Takes about two minutes. The requests are made on the same machine, so a server alone takes some more.

    Parameters
    ----------
    model
        As for serve.
    input
        A file or folder with texts like those of your requests; python-docs is the documentation of the running Python.
    words
        Split the texts into passages of this many words; by default whole texts of a file, and 25 words of python-docs.
    within_ms
        Milliseconds in which 99 of 100 requests have to be answered.
    seconds
        Seconds for each rate.
    """
    try:
        from bertkit.sizing.server import FIRST_RATE, measure_server
    except ModuleNotFoundError as error:
        raise DependencyError(f"bertkit sizing needs {error.name}: pip install 'bertkit[serve]'") from None
    from bertkit.tokenizer.workspaces import num_processors

    for name, value in (("within-ms", within_ms), ("seconds", seconds), ("words", words)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} {value}: expected a number above 0")
    if words is None and input == "python-docs":
        words = _WORDS
    texts = list(islice(_passages(input, column, words), _MOST_TEXTS))
    arguments = ["--model", model, "--precision", compute.precision, "--device", compute.device]
    sizing = measure_server(
        arguments, texts, within_ms=within_ms, seconds=seconds,
        on_load=lambda load: note(f"{load.rate:.0f} requests a second: 99 % within {load.p99_ms:.0f} ms"),
    )  # fmt: skip
    facts = {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(sizing).items()}
    emit([{"model": model, "precision": compute.precision, "cores": num_processors(), **facts}])
    if not sizing.requests_per_second:
        note(f"not even {FIRST_RATE:g} requests a second were answered within {within_ms:g} ms: raise --within-ms")


def _passages(source: str, column: str | None, num_words: int | None) -> Iterator[str]:
    """The texts of a source, split into passages of a number of words."""
    from bertkit.corpus.texts import read_texts

    for text in read_texts(source, column):
        split = text.split()
        parts = [text] if num_words is None else [split[at : at + num_words] for at in range(0, len(split), num_words)]
        yield from (part if isinstance(part, str) else " ".join(part) for part in parts if part)
