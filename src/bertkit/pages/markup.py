"""HTML and SVG elements; all text is escaped."""

import re
from collections.abc import Iterable
from html import escape

_ENDS_OF_PLANES = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_NOT_HTML = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_ENDS_OF_PLANES}]")
_VOID = frozenset({"meta", "br", "input", "link"})  # elements without an end tag


class Markup(str):
    """Safe HTML, from `element` and `text`; any other string is data and gets escaped."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escaped text; characters that HTML does not allow (control characters, lone surrogates, noncharacters) become
    U+FFFD, so that they are visible and the page can be encoded."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_NOT_HTML.sub("\ufffd", str(value)), quote=True))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element.

    Args:
        children: Markup is inserted as is, None omitted, a list, tuple or generator inserted by item, anything else
            escaped.
        attributes: ``class_`` is written class, ``text_anchor`` text-anchor; None omits the attribute.

    >>> element("p", "1 < 2 ", element("b", "&"), class_="note")
    '<p class="note">1 &lt; 2 <b>&amp;</b></p>'
    """
    opening = name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Markup:
    """Concatenated children of an element, as `element` accepts them."""
    return Markup("".join(_child(child) for child in children))


def data(value: object) -> Markup:
    """Escaped data within other text; it cannot change the text direction of its surroundings."""
    return element("bdi", value)


def _child(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, list | tuple) or (isinstance(child, Iterable) and not isinstance(child, str)):
        return join(child)
    return text(child)


def _attribute(value: object) -> str:
    return text(f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value))
