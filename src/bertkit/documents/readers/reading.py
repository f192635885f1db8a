"""A file that is being read: its bytes up to a size, and its text in the encoding that it declares or that fits."""

import codecs
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bertkit.documents.document import Document, Heading, SkippedFile
from bertkit.documents.metadata import Scalar
from bertkit.errors import DataError
from bertkit.files.lines import other_encoding

PART_LENGTH = 1 << 20
"""Number of characters read at once of a text that is read in parts."""
LARGEST_WHOLE = 1 << 26
"""Maximum size in bytes of a file that is read at once, and of what is unpacked of one."""
_SAMPLE = 1 << 16
"""Number of bytes that an encoding is guessed from."""
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
_MARKUP = re.compile(
    rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)|<meta[^>]*?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)
_DECLARATIONS = {
    **dict.fromkeys(("html", "htm", "xhtml", "xml"), _MARKUP),
    "py": re.compile(rb"\A(?:.*\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)"),
    "tex": re.compile(rb"\\usepackage\[(\w+)\]\{inputenc\}"),
}
_SUPERSETS = {  # of declared encodings, which browsers read instead
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030",
    "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
_BYTES = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r"]
"""Encodings that are guessed, of a byte for each character."""
_WIDE = ["gb18030", "big5", "cp932", "euc_jp", "cp949"]
"""Others that are guessed, of Chinese, Japanese and Korean."""
_LOG = logging.getLogger("bertkit.documents")


@dataclass
class Reading:
    """A file that is being read, and what the reader reports."""

    name: str  # of the document
    path: Path
    kind: str
    column: str | None  # of the texts of rows
    skipped: list[SkippedFile]

    def document(
        self,
        text: str,
        title: str = "",
        headings: tuple[Heading, ...] = (),
        offset: int = 0,
        line: int | None = 0,
        **metadata: Scalar,
    ) -> Document:
        """A document, or the part of one at an offset."""
        return Document(self.name, text, title, headings, {"source": self.name} | metadata, offset, line)

    def joined(self, blocks: Iterable[tuple[str, int]], title: str, between: str = "\n\n") -> Document:
        """The document of texts with their levels as headings, 0 for none; of empty ones in a row, the first."""
        texts, headings, start = [""], list[Heading](), 0
        for text, level in blocks:
            if text or texts[-1]:
                headings += [(start, level, text)] if level else []
                texts.append(text)
                start += len(text) + len(between)
        return self.document(between.join(texts[1:]), title, tuple(headings))

    def skip(self, why: str) -> None:
        """Report a part of the file that is not read."""
        self.skipped.append(SkippedFile(self.name, why, is_part=True))

    def data(self) -> bytes:
        """The bytes of the file."""
        size = self.path.stat().st_size
        if size > LARGEST_WHOLE:
            raise DataError(f"{size:,} bytes: expected at most {LARGEST_WHOLE:,} for {self.kind}; split the file")
        return self.path.read_bytes()

    def text(self) -> str:
        """The text of the file."""
        return self.data().decode(*self.encoding)

    def text_parts(self) -> Iterator[tuple[int, str]]:
        """The text of a file of any size in parts of whole lines, each with the offset of its first character."""
        offset = 0
        encoding, errors = self.encoding
        with open(self.path, encoding=encoding, errors=errors, newline="") as file:
            text = file.read(PART_LENGTH)
            while text:
                more = file.read(PART_LENGTH)
                end = _part_end(text) if more else len(text)
                yield offset, text[:end]
                offset += end
                text = text[end:] + more

    @cached_property
    def encoding(self) -> tuple[str, str]:
        """The encoding of the text, and how its errors are handled: that of a byte order mark, or a declaration; else
        UTF-8, or a guess, which is logged.

        Raises:
            DataError: binary data, or no encoding fits.
        """
        with open(self.path, "rb") as file:
            start = file.read(_SAMPLE)
            if mark := next((mark for mark in _MARKS if start.startswith(mark)), None):
                return _MARKS[mark], "replace"
            if advice := other_encoding(start):
                raise DataError(advice)
            if b"\0" in start[:8192]:
                raise DataError("binary, not text")
            if (pattern := _DECLARATIONS.get(self.kind)) and (match := pattern.search(start[:4096])):
                declared = _codec(next(filter(None, match.groups())).decode())
                if declared not in ("", "utf-8"):
                    return declared, "replace"
            decoder = codecs.getincrementaldecoder("utf-8")()
            chunk = start
            try:
                while chunk:
                    decoder.decode(chunk)
                    chunk = file.read(PART_LENGTH)
                decoder.decode(b"", final=True)
                return "utf-8", "strict"
            except UnicodeDecodeError as error:
                line = error.object.rfind(b"\n", 0, max(0, error.start - _SAMPLE // 2)) + 1
                return self._guessed(error.object[line : line + _SAMPLE])

    def _guessed(self, sample: bytes) -> tuple[str, str]:
        text = sample.decode("utf-8", "replace")
        if sum(character > "\x7f" for character in text) > 10 * text.count("\ufffd"):
            self.skip("some bytes are not UTF-8, and are lost")
            return "utf-8", "replace"
        from charset_normalizer import from_bytes

        is_mostly_ascii = 10 * len(sample.decode("ascii", "ignore")) > 9 * len(sample)
        matches = from_bytes(sample, cp_isolation=_BYTES if is_mostly_ascii else _BYTES + _WIDE)
        if (best := matches.best()) is None:
            raise DataError("not UTF-8, and no other encoding fits: convert the file (iconv -t utf-8)")
        equal = (one for one in matches if (one.chaos, one.coherence) == (best.chaos, best.coherence))
        encodings = {name for one in equal for name in one.could_be_from_charset}
        encoding = "cp1252" if "cp1252" in encodings else best.encoding  # that of most such files
        _LOG.warning("%s: not UTF-8, read as %s, which is a guess", self.name, encoding)
        return encoding, "replace"


def _codec(name: str) -> str:
    """The codec for a declared encoding; "" if there is none, or the declaration cannot be written in it, as in UTF-16
    without a byte order mark."""
    try:
        if name.encode().decode(name) != name:
            return ""
    except (LookupError, UnicodeError):  # the first also for codecs that are not of text
        return ""
    codec = codecs.lookup(name).name
    return _SUPERSETS.get(codec, codec)


def _part_end(text: str) -> int:
    """End of a part: after an empty line in its second half, else after a line or a word."""
    if (end := text.rfind("\n\n")) > len(text) // 2:
        return end + 2
    return text.rfind("\n") + 1 or text.rfind(" ") + 1 or len(text)
