"""Lines of UTF-8 files, numbered; "-" is standard input."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bertkit.errors import DataError


class Line(NamedTuple):
    """A line of a file."""

    number: int  # from 1
    text: str  # with its line end
    invalid: str = ""  # the problem with bytes that are not UTF-8, which became replacement characters in the text

    @property
    def content(self) -> str:
        """The text without its line end."""
        return self.text.removesuffix("\n").removesuffix("\r")


_OTHER_FILES = {
    b"\x1f\x8b": "the file is compressed (gzip -d)",
    b"\xff\xfe\0\0": "the file is in UTF-32 (iconv -f utf-32 -t utf-8)",
    b"\0\0\xfe\xff": "the file is in UTF-32 (iconv -f utf-32 -t utf-8)",
    b"\xff\xfe": "the file is in UTF-16 (iconv -f utf-16 -t utf-8)",
    b"\xfe\xff": "the file is in UTF-16 (iconv -f utf-16 -t utf-8)",
    b"PAR1\x15": "the file is in the format parquet: name it .parquet",
    b"ARROW1\0\0": "the file is in the format Arrow: save its table as parquet or CSV",
    b"\xff\xff\xff\xff": "the file is in the format Arrow, as a data set saved to disk: save it as parquet or CSV",
    b"\x28\xb5\x2f\xfd": "the file is compressed (zstd -d)",
    b"\xfd7zXZ\0": "the file is compressed (xz -d)",
    **{b"BZh%d1AY" % level: "the file is compressed (bzip2 -d)" for level in range(1, 10)},
    b"%PDF-": "the file is a PDF: save its text as UTF-8 (pdftotext)",
    b"PK\x03\x04": "the file is an Excel workbook or another zip archive: save its table as CSV UTF-8",
    b"\xd0\xcf\x11\xe0": "the file is an old Excel or Word file: save it as CSV UTF-8, or as text in UTF-8",
}
"""Advice by the first bytes of a file that is not text."""

ZERO_BYTES = "the file has zero bytes, as in UTF-16 (iconv -f utf-16le -t utf-8, or utf-16be), or is binary"

TO_UTF8 = "convert the file (iconv -f windows-1252 -t utf-8)"
"""Advice on bytes that are not UTF-8: Windows-1252 has the printable characters of Latin-1, and quotes and the euro."""


def other_encoding(start: bytes) -> str:
    """What a file is that begins with these bytes, and how to convert it; "" if that of UTF-8 is possible."""
    otherwise = ZERO_BYTES if b"\0" in start[:2] else ""
    return next((advice for mark, advice in _OTHER_FILES.items() if start.startswith(mark)), otherwise)


def what_it_is(path: str | Path, expected: str = "file") -> str:
    """The end of the error for a path that is no file."""
    if Path(path).is_dir():
        return " is a folder: expected a file"
    if Path(path).exists():
        return " is a pipe or a device, which can be read only once: write its content to a file, or pass it by -"
    return f": no such {expected}"


def extension(path: str | Path) -> str:
    """The extension of a path in lowercase.

    >>> extension("TEXTS.CSV")
    '.csv'
    """
    return Path(path).suffix.lower()


def location(path: str | Path, line: int) -> str:
    """Name of a row of a file in errors and reports."""
    name = "standard input" if str(path) == "-" else str(path)
    return f"{name}, {'row' if extension(path) == '.parquet' else 'line'} {line}"


def file_of(location: str) -> str:
    """The file that `location` names."""
    return location.rpartition(", ")[0]


def read_lines(file: Iterable[bytes], path: str | Path) -> Iterator[Line]:
    """The lines of a file in UTF-8, with or without a byte order mark. They end in LF or CRLF, or in CR alone if the
    first line does, as in old files of Macintosh and some exports of spreadsheets.

    Raises:
        DataError: the file is in UTF-16 or UTF-32, compressed or a workbook; its other lines may be valid UTF-8.
    """
    for number, line in enumerate(_with_cr_ends(file), start=1):
        codec = "utf-8-sig" if number == 1 else "utf-8"
        if number == 1 and (advice := other_encoding(line)):
            raise DataError(f"{location(path, 1)} is not UTF-8 text: {advice}")
        try:
            yield Line(number, line.decode(codec))
        except UnicodeDecodeError as error:
            yield Line(number, line.decode(codec, "replace"), f": byte {error.start} is not UTF-8; {TO_UTF8}")


def _with_cr_ends(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that end in LF, divided at CRs if the first of them has one before its end."""
    lines = iter(lines)
    first = next(lines, b"")
    if b"\r" not in first.rstrip(b"\r\n") or other_encoding(first):
        yield from chain([first] if first else [], lines)
        return
    for line in chain([first], lines):
        yield from line.splitlines(keepends=True)  # of bytes: only at CR, LF and CRLF


@contextmanager
def open_lines(path: str | Path) -> Iterator[Iterator[Line]]:
    """The lines of a file, or of standard input.

    Raises:
        DataError: no such file, or a folder, pipe or device; from the lines: as `read_lines`.
    """
    if str(path) == "-":
        yield read_lines(sys.stdin.buffer, path)
        return
    if not Path(path).is_file():
        raise DataError(f"{path}{what_it_is(path)}")
    with open(path, "rb") as file:
        yield read_lines(file, path)
