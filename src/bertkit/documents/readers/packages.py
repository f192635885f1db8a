"""Readers of zip archives of XML: Word, PowerPoint, Excel, OpenDocument and EPUB."""

import posixpath
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import IO
from urllib.parse import unquote
from xml.etree.ElementTree import Element, iterparse

from bertkit.documents.document import Document, Heading
from bertkit.documents.readers import reading as limits
from bertkit.documents.readers.html_text import html_text
from bertkit.documents.readers.reading import Reading
from bertkit.errors import DataError

_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "line-break": "\n", "s": " "}
_WITHOUT_WORDS = {"Fallback", "rPh", "pPr", "tracked-changes"}  # second versions, pronunciations, formats, deleted text
_SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml")
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
"""Numbers of the formats of dates that every workbook has."""


class _Package:
    """The parts of an archive; together, those that are read unpack to at most LARGEST_WHOLE bytes."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._left = archive, limits.LARGEST_WHOLE
        self.names = set(archive.namelist())

    def open(self, name: str) -> IO[bytes]:
        self._left -= self._archive.getinfo(name).file_size  # zipfile reads no more than this
        if self._left < 0:
            raise DataError(f"it unpacks to more than {limits.LARGEST_WHOLE:,} bytes: split the file")
        return self._archive.open(name)

    def elements(self, name: str, *tags: str) -> Iterator[Element]:
        """The outermost elements with some tags of a part, none if it is missing; each is freed afterwards."""
        path: list[Element] = []
        num_open = 0  # elements with these tags
        if name not in self.names:
            return
        with self.open(name) as file:
            for event, element in iterparse(file, ("start", "end")):
                if event == "start":
                    path.append(element)
                    num_open += _tag(element) in tags
                    continue
                path.pop()
                num_open -= _tag(element) in tags
                if not num_open:
                    if _tag(element) in tags:
                        yield element
                    element.clear()
                    if path:
                        path[-1].remove(element)

    def blocks(self, name: str) -> Iterator[tuple[str, Element]]:
        """The paragraphs, headings and rows of tables of a part."""
        for element in self.elements(name, "p", "h", "tr", "table-row", "tracked-changes"):
            is_row = _tag(element) in ("tr", "table-row")
            pieces = [" ".join(_words(cell).split()) for cell in element] if is_row else [_words(element)]
            if text := "\t".join(filter(None, pieces)).strip():
                yield text, element

    def title(self) -> str:
        """The title of the document, "" without one."""
        titles = (title.text for part in ("docProps/core.xml", "meta.xml") for title in self.elements(part, "title"))
        return " ".join(next(filter(None, titles), "").split())


@contextmanager
def _opened(reading: Reading) -> Iterator[_Package]:
    with zipfile.ZipFile(reading.path) as archive:
        yield _Package(archive)


def read_docx(reading: Reading) -> Iterator[Document]:
    """Paragraphs, tables and footnotes of Word."""
    with _opened(reading) as package:
        levels = {}
        for style in package.elements("word/styles.xml", "style"):
            if match := re.fullmatch("(?:heading ([1-9])|title)", _value(style.find("{*}name"), "val").lower()):
                levels[_value(style, "styleId")] = int(match[1] or 1)
        parts = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
        blocks = (
            (text, levels.get(_value(element.find("{*}pPr/{*}pStyle"), "val"), 0))
            for part in parts
            for text, element in package.blocks(part)
        )
        yield reading.joined(blocks, package.title())


def read_pptx(reading: Reading) -> Iterator[Document]:
    """Slides of PowerPoint, each under its first paragraph, with notes."""
    with _opened(reading) as package:
        blocks = list[tuple[str, int]]()
        for number in sorted(int(match[1]) for match in map(_SLIDE.fullmatch, package.names) if match):
            texts = [text for text, _ in package.blocks(f"ppt/slides/slide{number}.xml")]
            blocks += [(text, 1) for text in texts[:1]] + [(text, 0) for text in texts[1:]]
            blocks += [(text, 0) for text, _ in package.blocks(f"ppt/notesSlides/notesSlide{number}.xml")]
        yield reading.joined(blocks, package.title())


def read_opendocument(reading: Reading) -> Iterator[Document]:
    """Paragraphs, headings and tables of OpenDocument."""
    with _opened(reading) as package:
        blocks = (
            (text, int(_value(element, "outline-level") or 1) if _tag(element) == "h" else 0)
            for text, element in package.blocks("content.xml")
        )
        yield reading.joined(blocks, package.title())


def read_xlsx(reading: Reading) -> Iterator[Document]:
    """Sheets of Excel, each under its name; cells are separated by tabs."""
    with _opened(reading) as package:
        strings = [_words(element) for element in package.elements("xl/sharedStrings.xml", "si")]
        dates, is_date, start = set(_DATES), list[bool](), datetime(1899, 12, 30)
        for element in package.elements("xl/styles.xml", "numFmt", "cellXfs"):
            if _tag(element) == "cellXfs":
                is_date = [int(_value(one, "numFmtId") or 0) in dates for one in element]
            elif re.search("[dmyhs]", re.sub(r'"[^"]*"|\[[^]]*\]|\\.', "", _value(element, "formatCode").lower())):
                dates.add(int(_value(element, "numFmtId")))
        targets = {
            _value(one, "Id"): posixpath.normpath(posixpath.join("xl", _value(one, "Target"))).lstrip("/")
            for one in package.elements("xl/_rels/workbook.xml.rels", "Relationship")
        }

        def text_of(cell: Element) -> str:
            kind, value = _value(cell, "t"), cell.findtext("{*}v") or ""
            if kind == "s":
                return strings[int(value)]
            if kind == "inlineStr":
                return _words(cell)
            if kind in ("", "n") and value and (style := int(_value(cell, "s") or 0)) < len(is_date) and is_date[style]:
                return (start + timedelta(days=float(value))).isoformat(" ", "minutes").removesuffix(" 00:00")
            return value

        sheets, lines = list[tuple[str, str]](), list[tuple[str, int]]()
        for element in package.elements("xl/workbook.xml", "workbookPr", "sheets"):
            if _value(element, "date1904") in ("1", "true"):
                start = datetime(1904, 1, 1)
            sheets += [(_value(one, "name"), targets[_value(one, "id")]) for one in element]
        for name, part in sheets:
            lines.append((name, 1))
            for row in package.elements(part, "row"):
                lines.append(("\t".join(" ".join(text_of(cell).split()) for cell in row).strip(), 0))
        yield reading.joined(lines, package.title(), "\n")


def read_epub(reading: Reading) -> Iterator[Document]:
    """Chapters of EPUB in their order."""
    with _opened(reading) as package:
        (root,) = [_value(one, "full-path") for one in package.elements("META-INF/container.xml", "rootfile")][:1]
        titles, paths, order = list[str](), dict[str, str](), list[str]()
        for element in package.elements(root, "title", "item", "itemref"):
            if _tag(element) == "title":
                titles.append(" ".join("".join(element.itertext()).split()))
            elif _tag(element) == "item":
                link = unquote(_value(element, "href"))
                paths[_value(element, "id")] = posixpath.normpath(posixpath.join(posixpath.dirname(root), link))
            else:
                order.append(_value(element, "idref"))
        text, headings = "", list[Heading]()
        for id in order:
            with package.open(paths[id]) as file:
                page = html_text(file.read().decode("utf-8-sig", "replace"))
            headings += [(len(text) + start, level, name) for start, level, name in page.headings]
            text += page.text + "\n\n"
        yield reading.document(text, (titles or [""])[0], tuple(headings))


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _value(element: Element | None, name: str) -> str:
    """The value of an attribute in any namespace, "" without one."""
    items = element.items() if element is not None else ()
    return next((value for key, value in items if key.rpartition("}")[2] == name), "")


def _words(element: Element) -> str:
    """The text of a block: of elements "t" in Office Open XML, of all elements in OpenDocument."""
    tag, is_open = _tag(element), element.tag.startswith("{urn:oasis:")
    if tag in _WITHOUT_WORDS:
        return ""
    text = _SPACES.get(tag, "") or (element.text or "" if is_open or tag == "t" else "")
    return text + "".join(_words(child) + (child.tail or "" if is_open else "") for child in element)
