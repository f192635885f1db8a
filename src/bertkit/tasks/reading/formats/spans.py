"""Character spans of annotation tools, compared with the text that the tool noted for them."""

from typing import Any


def span_of(text: str, start: Any, end: Any, expected: Any = None) -> tuple[tuple[int, int], str]:
    """The span of an annotation in characters, and a problem or "". Tools in browsers count an emoji as two.

    Args:
        expected: the annotated text, if the tool noted it.
    """
    if type(start) is not int or type(end) is not int or not 0 <= start < end:
        return (0, 0), f" has a span from {start!r:.20} to {end!r:.20}: expected two numbers of characters"
    if expected is None or _same(text[start:end], expected):
        return (start, end), ""
    units = text.encode("utf-16-le", "surrogatepass")
    before, inside = units[: 2 * start], units[2 * start : 2 * end]
    if _same(inside.decode("utf-16-le", "replace"), expected):
        first = len(before.decode("utf-16-le", "replace"))
        return (first, first + len(inside.decode("utf-16-le", "replace"))), ""
    found = text[start:end]
    return (0, 0), f" has the span {start}-{end}, {found!r:.40}, where the annotation is {expected!r:.40}: correct it"


def _same(found: str, expected: Any) -> bool:
    """Whether two texts are equal up to white space, which tools change."""
    return isinstance(expected, str) and found.split() == expected.replace("\\n", "\n").split()
