"""Reading a page as a browser would, for tests: its elements, its texts, and where the texts of its drawings lie."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

from bertkit.pages.axes import FONT_SIZE, text_width

VOID = {"meta", "br"}


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


@dataclass(frozen=True)
class Box:
    """Where a text lies in a drawing."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        slack = 0.5
        return (
            self.left < other.right - slack
            and other.left < self.right - slack
            and self.top < other.bottom - slack
            and other.top < self.bottom - slack
        )


@dataclass(frozen=True)
class Drawing:
    """An SVG of a page."""

    root: ElementTree.Element
    width: float
    height: float
    texts: list[Box]


def drawings(content: str) -> list[Drawing]:
    """The drawings of a page, which must be well-formed XML too."""
    found = []
    for svg in re.findall(r'<svg [^>]*class="drawing.*?</svg>', content, re.DOTALL):
        root = ElementTree.fromstring(svg)
        left, top, width, height = map(float, root.attrib["viewBox"].split())
        assert (left, top) == (0, 0)
        found.append(Drawing(root, width, height, [_box(node) for node in root.iter("text")]))
    return found


def _box(node: ElementTree.Element) -> Box:
    """The letters' extent: from the top of capitals to the baseline."""
    content = "".join(node.itertext())
    width = text_width(content)
    if "transform" in node.attrib:  # upright, from its place upwards
        x, y = map(float, re.search(r"translate\((\S+) (\S+)\) rotate\(-90\)", node.attrib["transform"]).groups())
        return Box(content, x - 0.75 * FONT_SIZE, y - width, x, y)
    x, y = float(node.attrib["x"]), float(node.attrib["y"])
    left = {"start": x, "middle": x - width / 2, "end": x - width}[node.attrib.get("text-anchor", "start")]
    return Box(content, left, y - 0.75 * FONT_SIZE, left + width, y)
