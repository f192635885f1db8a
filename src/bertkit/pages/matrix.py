"""Matrices as shaded squares: confusions between labels, attention between tokens."""

from collections.abc import Sequence

import numpy as np

from bertkit.pages.axes import FONT_SIZE, LINE_HEIGHT, drawing, label, shortened, text_width
from bertkit.pages.markup import Markup, element
from bertkit.pages.page import details, figure, paragraph, scrolling, table

_SMALLEST, _LARGEST = 14, 44  # pixels of a square
_LABEL_WIDTH = 160
_MOST_WRITTEN = 20  # rows and columns whose numbers are written into their squares
_MOST_CONFUSED = 20  # labels of a confusion matrix that are drawn without being asked for
_WIDTH = 718  # with the border, the width of the text
_DARK = 0.65  # shades above it have light numbers


def heat_map(
    title: str,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    row_name: str,
    column_name: str,
    written: Sequence[Sequence[str]] | None = None,
    full: float | None = None,
    note: object = None,
    below: object = None,
) -> Markup:
    """A figure of squares, the darker the higher.

    Args:
        values: (rows, columns); 0 and what is not finite is left white.
        written: what to write into the squares and to say of them; by default the values with two decimals.
        full: the value of the darkest; by default the highest.
        below: what stands below the numbers.
    """
    values = np.asarray(values, np.float64)
    assert values.shape == (len(row_labels), len(column_labels)), "a label for each row and column"
    written = written or [[f"{value:.2f}" for value in row] for row in values.tolist()]
    finite = np.where(np.isfinite(values), values, 0.0)
    shades = np.clip(finite / (full or max(float(finite.max(initial=0.0)), 1e-300)), 0.0, 1.0)
    label_line = [f"{row_name} \\ {column_name}", *column_labels]
    rows = [[name, *cells] for name, cells in zip(row_labels, written, strict=True)]
    return figure(
        title,
        scrolling(_draw(title, shades, row_labels, column_labels, row_name, column_name, written)),
        note=note,
        numbers=[details("The numbers", table(label_line, rows)), below],
    )


def confusion_matrix(title: str, counts: np.ndarray, labels: Sequence[str], *, note: object = None) -> Markup:
    """A figure of how often each true label (row) was predicted as each label (column): counts, shaded by their share
    of the row.

    Of more than 20 labels the figure has those that are confused most among themselves; all are folded away below it.

    Args:
        counts: (num_labels, num_labels) integers.
    """
    counts = np.asarray(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def drawn(title: str, chosen: np.ndarray, note: object, below: object = None) -> Markup:
        names, block = [labels[number] for number in chosen], np.ix_(chosen, chosen)
        written = [[f"{count:,}" if count else "" for count in row] for row in counts[block].tolist()]
        return heat_map(
            title, shares[block], names, names, row_name="true", column_name="predicted", written=written, full=1.0,
            note=note, below=below,
        )  # fmt: skip

    everything = np.arange(len(labels))
    if len(labels) <= _MOST_CONFUSED:
        return drawn(title, everything, note)
    whole = details(f"All {len(labels):,} labels", drawn(f"{title}: all", everything, note))
    chosen = most_confused(counts, _MOST_CONFUSED)
    if not len(chosen):
        return figure(title, paragraph("No label was predicted in place of another."), numbers=whole)
    block, num_wrong = counts[np.ix_(chosen, chosen)], int(counts.sum() - counts.trace())
    summary = (
        f"The {len(chosen)} of {len(labels):,} labels with the most confusions among them: "
        f"{int(block.sum() - block.trace()):,} of {num_wrong:,}."
    )
    return drawn(title, chosen, [summary, None if note is None else [" ", note]], whole)


def most_confused(counts: np.ndarray, num_labels: int) -> np.ndarray:
    """At most ``num_labels`` labels with many confusions among them, in order; none that has no confusion with another.

    The label with the fewest confusions with those that are left is taken out until so many are left, which gives at
    least a half of the largest density there is when it is done for every number (Charikar 2000).

    Args:
        counts: (C, C) of true (row) and predicted (column) labels.
    """
    confusions = (counts + counts.T).astype(np.int64)
    np.fill_diagonal(confusions, 0)
    left, sums = np.ones(len(counts), np.bool_), confusions.sum(axis=0)
    while left.sum() > num_labels or (left.any() and sums[left].min() == 0):
        fewest = np.flatnonzero(left)[sums[left].argmin()]
        left[fewest] = False
        sums -= confusions[fewest]
    return np.flatnonzero(left)


def _draw(
    title: str,
    shades: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    row_name: str,
    column_name: str,
    written: Sequence[Sequence[str]],
) -> Markup:
    rows = [shortened(name, _LABEL_WIDTH) for name in row_labels]
    columns = [shortened(name, _LABEL_WIDTH) for name in column_labels]
    left = max(map(text_width, [row_name, *rows])) + 8
    widest = max((text_width(cell) for row in written for cell in row), default=0.0) + 8
    square = min(_LARGEST, max(_SMALLEST, (_WIDTH - left) / max(1, len(columns))))
    writes = max(shades.shape, default=0) <= _MOST_WRITTEN and widest <= 2 * _LARGEST
    width_of = max(square, widest) if writes else square
    upright = any(text_width(name) > width_of - 4 for name in columns)
    head = max(map(text_width, columns), default=0.0) + 8 if upright else LINE_HEIGHT + 4
    top = LINE_HEIGHT + 6 + head
    cells = []
    for i, j in np.argwhere(shades > 0).tolist():
        x, y = left + j * width_of, top + i * square
        name = f"{row_name} {row_labels[i]}, {column_name} {column_labels[j]}: {written[i][j]}"
        box = element(
            "rect", x=x, y=y, width=width_of - 1, height=square - 1, class_="fill-1", fill_opacity=float(shades[i, j])
        )
        cells.append(element("g", element("title", name), box))
        if writes:
            class_ = "figures over-dark" if shades[i, j] > _DARK else "figures"
            cells.append(label(written[i][j], x + width_of / 2, y + square / 2, anchor="middle", class_=class_))
    width = left + width_of * len(columns)
    names = [label(name, left - 8, top + (i + 0.5) * square, anchor="end") for i, name in enumerate(rows)]
    for j, name in enumerate(columns):
        x = left + (j + 0.5) * width_of
        if upright:
            place = f"translate({x + 0.35 * FONT_SIZE:.1f} {top - 6:.1f}) rotate(-90)"
            names.append(element("text", name, transform=place))
        else:
            names.append(label(name, x, top - 4 - LINE_HEIGHT / 2, anchor="middle"))
    frame = element("rect", x=left, y=top, width=width_of * len(columns), height=square * len(rows), class_="sheet")
    return drawing(
        max(width, left + text_width(column_name)) + 2,
        top + square * len(rows) + 2,
        f"{title}: {len(rows)} rows ({row_name}), {len(columns)} columns ({column_name})",
        label(column_name, left, LINE_HEIGHT / 2, class_="name"),
        label(row_name, left - 8, top - 4 - LINE_HEIGHT / 2, anchor="end", class_="name"),
        frame,
        cells,
        names,
    )
