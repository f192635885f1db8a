"""Reader of pages for tests: elements, texts, and their layout in a real browser."""

import html
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from bertkit.pages import Markup, page

VOID = {"meta", "br"}
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (320, 1440)


@dataclass
class PageReader(HTMLParser):
    """Elements with their attributes, the text of each kind of element, and a check that all are closed in order."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    open_elements: list[str] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open_elements.append(tag)

    def handle_endtag(self, tag):
        assert self.open_elements.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open_elements[-1] if self.open_elements else "", data))

    def handle_decl(self, decl):
        self.declarations.append(decl)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data!r}")

    def text_of(self, tag: str) -> list[str]:
        return [data for name, data in self.texts if name == tag]

    @property
    def text(self) -> str:
        return "".join(data for tag, data in self.texts if tag not in {"style", "script"})


def read(content: str) -> PageReader:
    """Parse a page or a part of it; every element must be closed."""
    reader = PageReader()
    reader.feed(content)
    reader.close()
    assert not reader.open_elements
    return reader


def tree(content: str) -> ElementTree.Element:
    """The main element of a page, or a part of one; it must be well-formed XML too."""
    main = re.search(r"<main>.*</main>", content, re.DOTALL)
    return ElementTree.fromstring(re.sub(r"<br>", "<br/>", main[0] if main else f"<main>{content}</main>"))


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [node for node in root.iter() if name in node.attrib.get("class", "").split()]


def number_of(node: ElementTree.Element, name: str) -> float:
    """An attribute, in percent."""
    return float(node.attrib[name].removesuffix("%"))


def labels(drawing: ElementTree.Element, axis: str) -> dict[str, float]:
    """The texts of a drawing with their positions along x or y, in percent."""
    return {"".join(node.itertext()): number_of(node, axis) for node in drawing.iter("text")}


def check_geometry(*contents: str) -> None:
    """Every mark and label lies within its drawing. With a browser, also at 320 and 1440 pixels: no text leaves its
    figure, no two overlap, and the page does not scroll sideways."""
    for content in contents:
        drawings = [*of_class(tree(content), "plot"), *of_class(tree(content), "strip")]
        for node in (node for drawing in drawings for node in drawing.iter()):
            for name in ("x", "x1", "x2", "cx", "y1", "y2", "cy"):
                if node.attrib.get(name, "").endswith("%"):
                    assert -0.01 <= number_of(node, name) <= 100.01, node.attrib
            if "d" in node.attrib:
                pairs = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", node.attrib["d"])
                assert all(-0.01 <= float(number) <= 100.01 for pair in pairs for number in pair)
    if CHROMIUM is not None:
        assert problems(contents) == []


def problems(contents) -> list[str]:
    """Layout faults of pages, or parts of pages, in a browser."""
    whole = [content if content.startswith("<!DOCTYPE") else page("x", [Markup(content)]) for content in contents]
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{html.escape(content)}"></iframe>'
        for content in whole
        for width in WIDTHS
    )
    program = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    with tempfile.TemporaryDirectory() as folder:
        harness = Path(folder) / "harness.html"
        harness.write_text(f"<!DOCTYPE html><meta charset=utf-8>{frames}<pre></pre><script>{_MEASURE}</script>")
        command = [*program, f"--user-data-dir={folder}/profile", harness.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    (result,) = re.findall(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    return json.loads(html.unescape(result))


_MEASURE = """
const faults = [];
const inside = (a, b, by) =>
  a.left >= b.left - by && a.right <= b.right + by && a.top >= b.top - by && a.bottom <= b.bottom + by;
const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
window.addEventListener("load", () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument;
    const say = (what) => faults.push(`${frame.width} px: ${what}`);
    for (const folded of page.querySelectorAll("details")) folded.open = false;
    if (page.documentElement.scrollWidth > frame.contentWindow.innerWidth) say("the page scrolls sideways");
    for (const figure of page.querySelectorAll("figure")) {
      const title = figure.querySelector("h3").textContent.slice(0, 40), box = figure.getBoundingClientRect();
      const texts = [...figure.querySelectorAll("svg text, .name, .legend li, .intervals tbody th, .interval-text")];
      const boxes = texts
        .filter((text) => !text.closest(".matrix"))
        .map((text) => [text.textContent, text.getBoundingClientRect()])
        .filter(([, area]) => area.width);
      for (const [text, area] of boxes) if (!inside(area, box, 1)) say(`${title}: ${text} leaves its figure`);
      boxes.forEach(([text, area], number) => {
        for (const [other, there] of boxes.slice(number + 1))
          if (meet(area, there)) say(`${title}: ${text} meets ${other}`);
      });
      for (const mark of figure.querySelectorAll(".plot circle, .plot path, .plot polygon")) {
        const plot = mark.closest(".plot").getBoundingClientRect();
        if (!inside(mark.getBoundingClientRect(), plot, 8)) say(`${title}: a mark leaves the plot`);
      }
    }
  }
  document.querySelector("pre").textContent = JSON.stringify(faults);
});
"""
