"""HTML to text: paragraphs, headings and a title; without scripts, styles and menus.

The tags are found by a small scanner, not by Python's html.parser: that takes quadratic time for hostile pages, stops
with an exception at some declarations, and reads broken pages differently from one patch release to the next.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import pairwise
from typing import NamedTuple

_HIDDEN = {"script", "style", "noscript", "template", "nav", "svg"}
_BLOCKS = set(
    "address article aside blockquote br dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr li main nav ol p pre section summary table td th tr ul".split()
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_END_OF_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "title", "textarea")
}
"""The end tags of elements without tags in them: "<b>" in a title is text."""

_MARKUP = re.compile(
    r"""<(?:
        !--(?:-?>|.*?(?:--!?>|\Z))  # a comment
        |[!?][^>]*+(?:>|\Z)  # a declaration
        |(?P<slash>/?)(?P<name>[a-zA-Z][^\s/>]*+)
         (?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|(?P<bare>[^\s>"'][^\s>]*+))?)*+  # attributes,
         # whose quoted values may contain ">"
         (?:>|\Z)
        |/[^>]*+(?:>|\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
"""Tags, comments and declarations, as in the HTML standard. An alternative that has begun never fails, so that the
whole takes linear time; but without a closing quote, the value of an attribute ends like the tag."""

_LEADING_ZEROS = re.compile(r"(?<=&#)0+(?=[0-9])|(?<=&#[xX])0+(?=[0-9a-fA-F])")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
"""References to characters that do not exist, without zeros; `html.unescape` fails at thousands of digits."""


class HtmlText(NamedTuple):
    """The text of a page."""

    text: str
    title: str
    headings: list[tuple[int, int, str]]  # (first character, level from 1, heading)


class _Token(NamedTuple):
    """Text, or a tag by its name in lower case."""

    kind: str  # "text", "start", "end", or "whole" for a start tag that is its own end: "<br/>"
    value: str


def html_text(source: str) -> HtmlText:
    """The visible text of HTML, blocks separated by empty lines, cells of a row by tabs if none has several blocks.

    A hidden element that is never closed is visible.

    >>> html_text("<title>A</title><h1>On &amp; off</h1><p>One  two.</p><script>no()</script>")
    HtmlText(text='On & off\\n\\nOne two.', title='A', headings=[(0, 1, 'On & off')])
    """
    tokens = list(_tokens(source))
    reader, ends, at = _Reader(), _hidden(tokens), 0
    while at < len(tokens):
        reader.read(tokens[at])
        at = ends.get(at, at + 1)
    return HtmlText(*reader.result())


def _tokens(source: str) -> Iterator[_Token]:
    """The texts and tags of a page, in order."""
    at, end, never_ended = 0, source.rfind(">") + 1, set()
    while match := _MARKUP.search(source, at, end):
        if at < match.start():
            yield _Token("text", _unescaped(source[at : match.start()]))
        at = match.end()
        if match["name"] is None:
            continue
        name = match["name"].lower()
        if match["slash"]:
            yield _Token("end", name)
        elif match[0].endswith("/>") and match.end("bare") != match.end() - 1:  # where the slash is part of the value
            yield _Token("whole", name)
        else:
            yield _Token("start", name)
            if name not in _END_OF_RAW or name in never_ended:
                continue
            if end_tag := _END_OF_RAW[name].search(source, at):
                yield _Token("text", _unescaped(source[at : end_tag.start()]))
                at = end_tag.start()
            elif name in _HIDDEN:
                return  # the rest is its code
            else:
                never_ended.add(name)
    yield _Token("text", _unescaped(source[at:]))


def _unescaped(text: str) -> str:
    return unescape(_LONG_NUMBER.sub("\ufffd", _LEADING_ZEROS.sub("", text))) if "&" in text else text


def _hidden(tokens: Sequence[_Token]) -> dict[int, int]:
    """The first and the last token of each hidden element that is closed."""
    ends: dict[int, int] = {}
    open_elements: list[tuple[int, str]] = []
    num_open: Counter[str] = Counter()
    for index, (kind, name) in enumerate(tokens):
        if kind == "start" and name in _HIDDEN:
            open_elements.append((index, name))
            num_open[name] += 1
        elif kind == "end" and num_open[name]:
            while True:
                start, closed = open_elements.pop()
                num_open[closed] -= 1
                if closed == name:
                    break
            ends[start] = index
    return ends


class _Reader:
    """Collects the blocks of a page from its tokens."""

    def __init__(self) -> None:
        self._blocks: list[tuple[str, int]] = []  # text and level of heading, 0 for none
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._level, self._in_title, self._in_pre = 0, False, False
        self._cells: list[int] | None = None  # the number of blocks before each cell of a row

    def read(self, token: _Token) -> None:
        """Read a token that is not inside of a hidden element."""
        kind, value = token
        if kind == "text":
            (self._title if self._in_title else self._pieces).append(value)
        elif kind == "end":
            self._end(value)
        elif kind == "start" or value == "br":
            self._start(value)
        elif value in _BLOCKS:
            self._end_block()

    def _start(self, tag: str) -> None:
        self._in_title = tag == "title"
        if tag == "br" and self._level:
            self._pieces.append(" ")  # in a heading
        elif tag in _BLOCKS:
            self._end_block()
            if tag == "tr":
                self._end_row()
                self._cells = []
            elif tag in ("td", "th") and self._cells is not None:
                self._cells.append(len(self._blocks))
            self._level = _HEADINGS.get(tag, self._level)
            self._in_pre = self._in_pre or tag == "pre"

    def _end(self, tag: str) -> None:
        self._in_title = False  # any tag ends a title, which has none inside
        if tag in _BLOCKS:
            self._end_block()
            if tag in ("tr", "table"):
                self._end_row()
            self._level = 0 if tag in _HEADINGS else self._level
            self._in_pre = self._in_pre and tag != "pre"

    def _end_block(self) -> None:
        text = "".join(self._pieces)
        text = text.strip("\n") if self._in_pre else " ".join(text.split())
        if text.strip():
            self._blocks.append((text, self._level))
        self._pieces.clear()

    def _end_row(self) -> None:
        """Make the blocks of a row one, unless a cell has several, a heading or lines of code."""
        cells, self._cells = self._cells, None
        if cells:
            row = self._blocks[cells[0] :]
            most = max(end - start for start, end in pairwise([*cells, len(self._blocks)]))
            if most == 1 and not any(level or "\n" in text for text, level in row):
                self._blocks[cells[0] :] = [("\t".join(text for text, _ in row), 0)]

    def result(self) -> tuple[str, str, list[tuple[int, int, str]]]:
        self._end_block()
        headings, at = [], 0
        for text, level in self._blocks:
            if level:
                headings.append((at, level, text))
            at += len(text) + 2
        return "\n\n".join(text for text, _ in self._blocks), " ".join("".join(self._title).split()), headings
