"""Self-contained HTML pages and their parts: headings, findings, tables, figures."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from bertkit.files.json_files import json_value
from bertkit.files.whole_files import whole_file
from bertkit.pages.markup import Markup, data, element, join
from bertkit.pages.ticks import format_number


@dataclass(frozen=True)
class Program:
    """Style, script and data of an interactive page."""

    style: str  # CSS, after that of every page
    script: str  # JavaScript, run at the end of the page; it reads its data from the element "program-data"
    data: object  # a JSON value
    asks_server: bool = False  # may send requests to the server that the page comes from


def write_page(path: str | Path, title: str, parts: Sequence[Markup]) -> None:
    """Write a page atomically.

    Raises:
        UsageError: the folder does not exist, or ``path`` is a folder.
    """
    with whole_file(path) as temporary:
        temporary.write_text(page(title, parts), encoding="utf-8", newline="\n")


def page(title: str, parts: Sequence[Markup], program: Program | None = None, framed: Sequence[Program] = ()) -> str:
    """A whole HTML document. Nothing is fetched, except what a program asks its server: style sheet and scripts are
    embedded, and the content security policy (https://www.w3.org/TR/CSP3/) names their hashes and forbids everything
    else.

    Args:
        framed: programs of pages in ``srcdoc`` frames of this page, or that it opens, which are subject to its policy
            too.
    """
    styles, scripts = [_own_file("page.css") + _shades()], [_own_file("hover.js")]
    if program is not None:
        styles.append(program.style)
        scripts.append(program.script)
    allowed_styles = dict.fromkeys([*styles, *(each.style for each in framed)])
    allowed_scripts = dict.fromkeys([*scripts, *(each.script for each in framed)])
    policy = (
        f"default-src 'none'; style-src {' '.join(map(_hash, allowed_styles))}; "
        f"script-src {' '.join(map(_hash, allowed_scripts))}; base-uri 'none'; form-action 'none'"
    )
    asks_server = program is not None and program.asks_server
    if asks_server:
        policy += "; connect-src 'self'; img-src data:"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,") if asks_server else None,  # a browser asks a server for one
        element("title", title),
        [element("style", Markup(style)) for style in styles],
    )
    content = None if program is None else _json(program.data)
    body = element(
        "body",
        element("main", element("h1", title), *parts),
        content and element("script", content, type="application/json", id="program-data"),
        [element("script", Markup(script)) for script in scripts],
        class_="page",
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, *parts: object) -> Markup:
    """A section under a heading."""
    return element("section", element("h2", title), *parts)


def paragraph(*parts: object) -> Markup:
    return element("p", *parts)


def findings(items: Sequence[tuple[str, object]]) -> Markup:
    """A list of sentences, each marked "good", "note" or "warning" by a symbol and a label, not by color alone."""
    marks = {"good": "✓", "note": "·", "warning": "!"}
    return element(
        "ul",
        [
            element(
                "li", element("span", marks[kind], class_="mark", role="img", aria_label=kind), " ", what, class_=kind
            )
            for kind, what in items
        ],
        class_="findings",
    )


def headline(items: Sequence[tuple[str, object, object]]) -> Markup:
    """The most important numbers in large type: (name, value, remark)."""
    return element(
        "dl",
        [
            element("div", element("dt", name), element("dd", value), element("dd", remark, class_="remark"))
            for name, value, remark in items
        ],
        class_="headline",
    )


def table(columns: Sequence[object], rows: Sequence[Sequence[object]], *, caption: object = None) -> Markup:
    """A table; columns of numbers are aligned to the right.

    Args:
        rows: their cells: Markup, text, numbers, or None for an empty cell.
    """
    cells_of = [[row[column] for row in rows if row[column] is not None] for column in range(len(columns))]
    kinds = ["number" if cells and all(map(_is_number, cells)) else None for cells in cells_of]
    body = [
        element("tr", [element("td", _cell(cell), class_=kind) for cell, kind in zip(row, kinds, strict=True)])
        for row in rows
    ]
    head = element(
        "tr", [element("th", name, class_=kind, scope="col") for name, kind in zip(columns, kinds, strict=True)]
    )
    caption = None if caption is None else element("caption", caption)
    return scrolling(element("table", caption, element("thead", head), element("tbody", body)))


def scrolling(*parts: object) -> Markup:
    """Wide content that scrolls horizontally on a narrow screen."""
    return element("div", *parts, class_="scrolling", tabindex=0)


def details(summary: object, *parts: object) -> Markup:
    """Collapsed content that opens on click."""
    return element("details", element("summary", summary), *parts)


def figure(title: str, drawing: object, *, note: object = None, numbers: object = None) -> Markup:
    """A chart with its title, a note and its numbers."""
    return element(
        "figure",
        element("figcaption", element("h3", title), None if note is None else element("p", note, class_="note")),
        drawing,
        numbers,
    )


def share_bar(share: float) -> Markup:
    """A share from 0 to 1 as a number above a small bar, for table cells."""
    width = 60 * min(max(share, 0.0), 1.0) if share == share else 0.0
    bar = element(
        "svg", element("rect", width=width, height=3, class_="fill-1"), width=60, height=3, aria_hidden="true"
    )
    return join([element("span", f"{share:.3f}", class_="figures"), bar])


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float | np.number) and not isinstance(cell, bool)


def _cell(cell: object) -> object:
    if cell is None or isinstance(cell, Markup):
        return cell
    return format_number(float(cell)) if isinstance(cell, int | float | np.number) else data(cell)


def _shades() -> str:
    """CSS classes s1 to s100 of shaded cells, as the policy allows no style attributes: the share of color, and black
    or white text, the one with a contrast above 4.5 (WCAG 2.2, 1.4.3)."""

    def text_over(last_below: int, below: str, above: str) -> str:
        return "".join(f".s{n}{{--over:{below if n <= last_below else above}}}" for n in range(1, 101))

    shares = "".join(f".s{shade}{{--shade:{shade}%}}" for shade in range(1, 101))
    dark = text_over(58, "#fff", "#000")
    return f"{shares}{text_over(84, '#000', '#fff')}@media screen and (prefers-color-scheme: dark){{{dark}}}"


def _json(value: object) -> Markup:
    """JSON within a script element: all ASCII, without characters that can end the element."""
    written = json.dumps(json_value(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(written)


def _own_file(name: str) -> str:
    return files("bertkit.pages").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
