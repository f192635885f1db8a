"""Bytes of text, such as a file mapped into memory, to the tokens of their lines, without a str in between.

The format is that of BERT's pre-training data (google-research/bert, create_pretraining_data.py): UTF-8, a sentence or
paragraph a line, an empty line between documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.tokenizer.encoding import Pieces
from bertkit.tokenizer.library import Engine

OnInvalid = Literal["error", "replace", "skip"]
"""What to do with bytes that are not UTF-8: refuse them; read them as replacement characters, which the tokenizer
drops; or leave out each line that holds any."""

_BYTES_AT_A_TIME = 64 << 20
_LINE_END = 0x0A


@dataclass(frozen=True, eq=False)
class TokenizedLines:
    """The tokens of lines, empty lines among them, and what was wrong with the bytes."""

    pieces: Pieces  # a line is a text
    num_invalid: int = 0  # stretches of bytes that were not UTF-8
    num_lines_skipped: int = 0

    def documents(self) -> np.ndarray:
        """(D, 2) int64: first line, and line after the last, of each document; lines without tokens lie between."""
        filled = np.diff(self.pieces.cu_seqlens) > 2  # more than [CLS] and [SEP]
        changes = np.flatnonzero(np.diff(filled, prepend=False, append=False))
        return changes.reshape(-1, 2)


def tokenize_file(
    engine: Engine, path: str | Path, *, on_invalid: OnInvalid = "error", num_threads: int | None = None
) -> Iterator[TokenizedLines]:
    """Tokenize a file of any size in bounded memory: some 64 MB of its lines at a time.

    A part ends between documents if it can.

    Raises:
        DataError: no such file, or bytes that are not UTF-8 under ``on_invalid="error"``.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:  # cannot be mapped
        return
    data = np.memmap(path, np.uint8, "r")
    start, first_line = 0, 1
    while start < len(data):
        end = _part_end(data, start, start + _BYTES_AT_A_TIME)
        part = data[start:end]
        yield tokenize_lines(
            engine, part, on_invalid=on_invalid, num_threads=num_threads, name=str(path), first_line=first_line
        )
        first_line += int(np.count_nonzero(part == _LINE_END))
        start = end


def tokenize_lines(
    engine: Engine,
    data: np.ndarray,
    *,
    on_invalid: OnInvalid = "error",
    with_spans: bool = False,
    num_threads: int | None = None,
    name: str = "data",
    first_line: int = 1,
) -> TokenizedLines:
    """Tokenize the lines of (num_bytes,) uint8 ``data``; special tokens in them are text.

    Args:
        with_spans: whether to say where each token stands in its line.
        num_threads: most threads to use; None: one for each processor.
        name, first_line: what errors call the data, and the number they give its first line.

    Raises:
        DataError: bytes that are not UTF-8 under ``on_invalid="error"``.
    """
    if on_invalid not in ("error", "replace", "skip"):
        raise UsageError(f"on_invalid={on_invalid!r}: expected 'error', 'replace' or 'skip'")
    after_ends = np.flatnonzero(data == _LINE_END) + 1
    last = [len(data)] if len(data) and data[-1] != _LINE_END else []
    bounds = np.concatenate([[0], after_ends, last]).astype(np.int64)
    pieces, num_invalid = engine.tokenize_bytes(data, bounds, with_spans=with_spans, num_threads=num_threads)
    wrong = num_invalid > 0
    if on_invalid == "error" and wrong.any():
        line = int(wrong.argmax())
        byte = _first_invalid(data[bounds[line] : bounds[line + 1]].tobytes())
        raise DataError(
            f"{name}, line {first_line + line}: byte {byte} is not UTF-8; convert the file (iconv -f latin1 -t utf-8), "
            "or choose on_invalid='replace' or 'skip'"
        )
    if on_invalid == "skip" and wrong.any():
        pieces = pieces.keep(~wrong)
    skipped = int(wrong.sum()) if on_invalid == "skip" else 0
    return TokenizedLines(pieces, int(num_invalid.sum()), skipped)


def _part_end(data: np.ndarray, start: int, wanted: int) -> int:
    """The end of the last document before ``wanted``, else of the last line, else of the line that goes on there."""
    if wanted >= len(data):
        return len(data)
    ends = start + 1 + np.flatnonzero(data[start:wanted] == _LINE_END)
    if len(ends):
        empty = np.flatnonzero(np.diff(ends) == 1)
        return int(ends[empty[-1] + 1] if len(empty) else ends[-1])
    for further in range(wanted, len(data), _BYTES_AT_A_TIME):
        found = np.flatnonzero(data[further : further + _BYTES_AT_A_TIME] == _LINE_END)
        if len(found):
            return further + int(found[0]) + 1
    return len(data)


def _first_invalid(line: bytes) -> int:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return error.start
    raise AssertionError("the engine found bytes that are not UTF-8, Python none")
