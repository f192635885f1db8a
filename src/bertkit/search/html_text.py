"""HTML to text: paragraphs, headings and a title; without scripts, styles and menus."""

from html.parser import HTMLParser
from typing import NamedTuple

_HIDDEN = {"script", "style", "noscript", "template", "nav", "svg"}
_BLOCKS = set(
    "address article aside blockquote br dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr li main ol p pre section summary table td th tr ul".split()
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}


class HtmlText(NamedTuple):
    """The text of a page."""

    text: str
    title: str
    headings: list[tuple[int, int, str]]  # (first character, level from 1, heading)


def html_text(source: str) -> HtmlText:
    """The visible text of HTML, blocks separated by empty lines.

    >>> html_text("<title>A</title><h1>On &amp; off</h1><p>One  two.</p><script>no()</script>")
    HtmlText(text='On & off\\n\\nOne two.', title='A', headings=[(0, 1, 'On & off')])
    """
    reader = _Reader()
    reader.feed(source)
    reader.close()
    return HtmlText(*reader.result())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._blocks: list[tuple[str, int]] = []  # text and level of heading, 0 for none
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._hidden: list[str] = []
        self._level, self._in_title, self._in_pre = 0, False, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = "svg" not in self._hidden  # else of an image
        elif tag in _HIDDEN:
            self._hidden.append(tag)
        if tag == "br" and self._level:
            self._pieces.append(" ")  # in a heading
        elif tag in _BLOCKS:
            self._end_block()
            self._level = _HEADINGS.get(tag, self._level)
            self._in_pre = self._in_pre or tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self.handle_starttag(tag, attrs)
        elif tag in _BLOCKS:
            self._end_block()

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        if tag in _BLOCKS:
            self._end_block()
            self._level = 0 if tag in _HEADINGS else self._level
            self._in_pre = self._in_pre and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._hidden:
            self._pieces.append(data)

    def _end_block(self) -> None:
        text = "".join(self._pieces)
        text = text.strip("\n") if self._in_pre else " ".join(text.split())
        if text.strip():
            self._blocks.append((text, self._level))
        self._pieces.clear()

    def result(self) -> tuple[str, str, list[tuple[int, int, str]]]:
        self._end_block()
        headings, at = [], 0
        for text, level in self._blocks:
            if level:
                headings.append((at, level, text))
            at += len(text) + 2
        return "\n\n".join(text for text, _ in self._blocks), " ".join("".join(self._title).split()), headings
