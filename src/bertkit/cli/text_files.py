"""Files that are one text."""

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bertkit.errors import DataError
from bertkit.files.lines import TO_UTF8, other_encoding, what_it_is

_READ_AT_ONCE = 1 << 18


def text_pieces(input: str) -> Iterator[str]:
    """The text of a file or of standard input.

    Raises:
        DataError: no such file, or it is not UTF-8.
    """
    if input == "-":
        yield from _decoded(sys.stdin.buffer, "standard input")
        return
    path = Path(input)
    if not path.is_file():
        raise DataError(f"{input}{what_it_is(input)}")
    with open(path, "rb") as file:
        yield from _decoded(file, input)


def _decoded(file: BinaryIO, name: str) -> Iterator[str]:
    decoder, offset = codecs.getincrementaldecoder("utf-8")(), 0
    while True:
        data = file.read(_READ_AT_ONCE)
        advice = other_encoding(data) if offset == 0 else ""
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise DataError(f"{name}: byte {offset + error.start} is not UTF-8: {advice or TO_UTF8}") from None
        if "\0" in text:
            raise DataError(f"{name} has zero bytes: expected text: {advice or 'the file is binary'}")
        if not data:
            return
        offset += len(data)
        yield text
