"""Text with pieces shaded by a value, such as surprisal or attribution."""

from collections.abc import Sequence

import numpy as np

from bertkit.pages.markup import Markup, data, element
from bertkit.pages.page import figure
from bertkit.pages.ticks import format_number

_DARKEST = 50  # percent of the color, so that the text remains legible


def shaded_text(
    title: str,
    pieces: Sequence[str],
    values: np.ndarray,
    *,
    glued: Sequence[bool],
    value_name: str,
    note: object = None,
    numbers: object = None,
) -> Markup:
    """A figure of text with darker pieces for larger values, blue above zero, orange and underlined below.

    Args:
        pieces: n texts.
        values: (n,); NaN is not shaded.
        glued: n, True for a piece without a space before it.
        numbers: content below the text.
    """
    finite = np.where(np.isfinite(values), values, 0.0)
    full = max(float(np.abs(finite).max(initial=0.0)), 1e-300)
    spans: list[object] = []
    for piece, value, joins in zip(pieces, np.asarray(values, np.float64).tolist(), glued, strict=True):
        shade = round(_DARKEST * abs(value) / full) if np.isfinite(value) else 0
        kind = (f"s{shade} against" if value < 0 else f"s{shade}") if shade else None
        hint = f"{piece}: {value_name} {format_number(value)}" if np.isfinite(value) else None
        spans += [None if joins else " ", element("span", data(piece), class_=kind, title=hint)]
    return figure(title, element("p", spans, class_="shaded"), note=note, numbers=numbers)
