"""Readers of text: plain, Markdown, reStructuredText, LaTeX, Python, subtitles, manual pages and notebooks."""

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from bertkit.documents.document import Document, Heading, path_to
from bertkit.documents.readers.reading import Reading

_MARKDOWN_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*)$", re.MULTILINE)
_FENCE = re.compile(r"^(`{3,}(?=[^`\n]*$)|~{3,}).*?(^\1[`~]*[ \t]*\r?$|\Z)", re.MULTILINE | re.DOTALL)
_RST_LINE = re.compile(r"([!-/:-@[-`{-~])\1+")
_TEX_HEADING = re.compile(
    r"^[ \t]*\\(?P<command>title|part|chapter|section|subsection|subsubsection|paragraph)\*?(?:\[[^]\n]*\])?"
    r"\{(?P<name>[^\n]*?)\}[ \t]*+(?:\\label\{[^}\n]*\}[ \t]*+)?\r?$",
    re.MULTILINE,
)
_TEX_LEVELS = ["title", "part", "chapter", "section", "subsection", "subsubsection", "paragraph"]
_CUE = re.compile(
    r"^(?:(?<=\n\n)[^\n]+\n|\d+[ \t]*\n)?[ \t]*(?:\d+:)?\d+:\d\d[.,]\d+[ \t]+-->.*\n?|^(?:WEBVTT|NOTE\b).*\n(?:.+\n)*",
    re.MULTILINE,
)
_CUE_TAG = re.compile(r"</?(?:[biuv]|c|lang|font|ruby|rt)\b[^>\n]{0,99}>|<\d[\d:.]{0,99}>|\{\\[^}\n]{0,99}\}")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ROFF_ESCAPE = re.compile(r"\\(?:f(?:\[\w*\]|\(..|.)|s[-+]?\d+|\*?\[(?P<name>\w*)\]|\*?\((?P<two>..)|(?P<one>.))")
_MAN_TITLE = re.compile(r"""^[.'][ \t]*(?:TH|Dt)[ \t]+"?([^\s"]+)"?[ \t]+"?([^\s"]+)""", re.MULTILINE)
_ROFF_LAYOUT = {"TH", "Dt", "PD", "RS", "RE", "PP", "LP", "P", "TP", "TQ", "IX", "Dd", "Os", "Pp"}
_ROFF_SIGNS = {
    "-": "-", "e": "\\", " ": " ", "~": " ", "0": " ", "(": "(", "'": "´", "`": "`", ".": ".", "t": "\t", "\\": "\\",
    "aq": "'", "dq": '"', "cq": "’", "oq": "‘", "lq": "“", "rq": "”", "em": "—", "en": "–", "co": "©",
    "rs": "\\", "ti": "~", "ha": "^", "hy": "-", "mi": "−", "R": "®", "Tm": "™",
}  # fmt: skip


def read_text(reading: Reading) -> Iterator[Document]:
    """Text as it is."""
    for offset, text in reading.text_parts():
        yield reading.document(text, offset=offset, line=None)


def read_markdown(reading: Reading) -> Iterator[Document]:
    """Markdown as it is, with its headings."""
    for offset, text, headings in _with_headings(reading.text_parts()):
        yield reading.document(text, headings=headings, offset=offset, line=None)


def with_headings(headings_of: Callable[[str], tuple[Heading, ...]]) -> Callable[[Reading], Iterator[Document]]:
    """A reader of text as it is, with the headings that a function finds in the whole."""

    def read(reading: Reading) -> Iterator[Document]:
        text = reading.text()
        yield reading.document(text, headings=headings_of(text), line=None)

    return read


def read_subtitles(reading: Reading) -> Iterator[Document]:
    """The words of srt and vtt subtitles, without times, numbers and styles."""
    text = _LINE_END.sub("\n", reading.text())
    words = _CUE_TAG.sub("", _CUE.sub("", text))
    yield reading.document(re.sub(r"\n{2,}", "\n", words).strip("\n"))


def read_man(reading: Reading) -> Iterator[Document]:
    """The text of a manual page in roff, with its sections; text as it is, if the file only has such a name."""
    _, start = next(reading.text_parts(), (0, ""))
    if title := _MAN_TITLE.search(start):
        yield reading.joined(_roff(reading.text()), f"{title[1]} {title[2]}", "\n")
    else:
        yield from read_text(reading)


def read_notebook(reading: Reading) -> Iterator[Document]:
    """The cells of a Jupyter notebook, without their outputs."""
    notebook = json.loads(reading.text())
    cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
    text, headings = "", list[Heading]()
    for cell in cells:
        source = "".join(cell.get("source", cell.get("input", ())))
        if cell["cell_type"] == "markdown":
            headings += [(len(text) + start, level, name) for start, level, name in markdown_headings(source)]
        text += source + "\n\n"
    yield reading.document(text, headings=tuple(headings))


def markdown_headings(text: str) -> tuple[Heading, ...]:
    """The headings of Markdown: (first character, level, heading); not in code blocks.

    >>> markdown_headings("# One\\n\\n~~~\\n# no\\n~~~\\n## Two ##\\n")
    ((0, 1, 'One'), (20, 2, 'Two'))
    """
    code = [match.span() for match in _FENCE.finditer(text)]
    starts = [start for start, _ in code]
    headings = []
    for match in _MARKDOWN_HEADING.finditer(text):
        heading = match[2].rstrip(" \t\r").rstrip("#").rstrip(" \t")
        before = bisect_right(starts, match.start())  # code blocks that begin before it
        if heading and not (before and match.start() < code[before - 1][1]):
            headings.append((match.start(), len(match[1]), heading))
    return tuple(headings)


def _with_headings(parts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, tuple[Heading, ...]]]:
    """Parts of Markdown with their headings, and with those of earlier parts that they begin under."""
    path: list[Heading] = []
    fence = ""  # opens the code block that the part begins in
    for offset, text in parts:
        fenced = fence + text
        own = [(start - len(fence), level, heading) for start, level, heading in markdown_headings(fenced)]
        yield offset, text, (*path, *own)
        for heading in own:
            path = path_to(heading, path)
        path = [(start - len(text), level, heading) for start, level, heading in path]
        fence = next((f"{block[1]}\n" for block in _FENCE.finditer(fenced) if not block[2]), "")


def rst_headings(text: str) -> tuple[Heading, ...]:
    """The headings of reStructuredText, whose levels are the order in which their lines first occur.

    >>> rst_headings("==\\nOn\\n==\\n\\nOff\\n===\\n\\nUp\\n--\\n")
    ((3, 1, 'On'), (10, 2, 'Off'), (19, 3, 'Up'))
    """
    styles: list[tuple[str, bool]] = []
    headings, start, before, over, name = list[Heading](), 0, 0, "", ""  # before and name: of the line above
    for line in text.splitlines(keepends=True):
        under = line.rstrip()
        if _RST_LINE.fullmatch(under) and len(under) >= len(name.strip()) > 0 and not _RST_LINE.fullmatch(name):
            style = under[0], over == under
            if style not in styles:
                styles.append(style)
            headings.append((before, styles.index(style) + 1, name.strip()))
        before, start, over, name = start, start + len(line), name, under
    return tuple(headings)


def tex_headings(text: str) -> tuple[Heading, ...]:
    r"""The headings of LaTeX.

    >>> tex_headings("\\section{On}\nText.\n\\subsection*{Off}\n")
    ((0, 4, 'On'), (19, 5, 'Off'))
    """
    matches = _TEX_HEADING.finditer(text)
    return tuple((match.start(), _TEX_LEVELS.index(match["command"]) + 1, match["name"]) for match in matches)


def python_headings(text: str) -> tuple[Heading, ...]:
    """The functions and classes of Python, and "" after the last line of each; none for code that cannot be parsed.

    >>> python_headings("class A:\\n  def b(): pass\\n  c = 1\\nd = 2\\n")
    ((0, 1, 'class A'), (9, 2, 'def b'), (25, 2, ''), (33, 1, ''))
    """
    lines = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
    headings: dict[int, Heading] = {}

    def add(node: ast.AST, level: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                start = lines[min(one.lineno for one in (child, *child.decorator_list)) - 1]
                kind = "class" if isinstance(child, ast.ClassDef) else "def"
                headings[start] = start, level, f"{kind} {child.name}"
                add(child, level + 1)
                end = lines[child.end_lineno or 1]
                headings[end] = end, level, ""
            elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                add(child, level)

    try:
        with warnings.catch_warnings(action="ignore"):
            add(ast.parse(text), 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(headings[start] for start in sorted(headings))


def _roff(text: str) -> Iterator[tuple[str, int]]:
    """The lines of a manual page, with the levels of headings."""
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        request = re.match(r"[.'][ \t]*(\S*)[ \t]*(.*)", line)
        name, words = (request[1], re.sub(r'"((?:[^"]|"")*)"', r"\1", request[2])) if request else ("", line)
        if name in ("SH", "Sh", "SS", "Ss"):
            yield from (("", 0), (_unescaped(words), 1 if name in ("SH", "Sh") else 2), ("", 0))
        elif name == "IP":
            yield from (("", 0), (_unescaped(re.sub(r"(?<!\s)\s+\d+\w?$", "", words)), 0))
        elif request and (name in _ROFF_LAYOUT or not name.isalpha() or (name.islower() and len(name) == 2)):
            yield "", 0
        else:
            yield _unescaped(words), 0


def _unescaped(line: str) -> str:
    def sign(match: re.Match) -> str:
        return _ROFF_SIGNS.get(match["name"] or match["two"] or match["one"] or "", "")

    return _ROFF_ESCAPE.sub(sign, line)
