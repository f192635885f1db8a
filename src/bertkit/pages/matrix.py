"""Heat maps: matrices as tables of shaded cells, such as confusion and attention matrices."""

from collections.abc import Sequence

import numpy as np

from bertkit.pages.markup import Markup, element
from bertkit.pages.page import details, figure, paragraph, scrolling

_MOST_CONFUSED = 20  # maximum number of labels of a confusion matrix shown by default
_MOST_LETTERS, _LONG = 60, 12  # letters of all column labels, and of one; longer labels are rotated


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
    """A figure of shaded cells, darker for higher values.

    Args:
        values: (rows, columns); 0 and values that are not finite are not shaded.
        written: cell texts; by default the values with two decimals.
        full: the value of the darkest shade; by default the highest value.
        below: content below the matrix.
    """
    values = np.asarray(values, np.float64)
    assert values.shape == (len(row_labels), len(column_labels)), "a label for each row and column"
    written = written or [[f"{value:.2f}" for value in row] for row in values.tolist()]
    finite = np.where(np.isfinite(values), values, 0.0)
    shares = np.clip(finite / (full or max(float(finite.max(initial=0.0)), 1e-300)), 0.0, 1.0)
    shades = np.maximum(np.round(100 * shares), shares > 0).astype(int).tolist()
    lengths = [max(4, len(label)) for label in column_labels]
    is_upright = sum(lengths) > _MOST_LETTERS or max(lengths, default=0) > _LONG
    columns = [element("th", element("span", label), scope="col", title=label) for label in column_labels]
    rows = [
        element(
            "tr",
            element("th", label, scope="row", title=label),
            [
                element("td", cell, class_=f"s{shade}",
                        title=f"{row_name} {label}, {column_name} {column}: {cell}") if shade else element("td", cell)
                for shade, column, cell in zip(shade_row, column_labels, cells, strict=True)
            ],
        )
        for label, shade_row, cells in zip(row_labels, shades, written, strict=True)
    ]  # fmt: skip
    head = element("tr", element("th", f"{row_name} \\ {column_name}", class_="name"), columns)
    kind = "matrix upright" if is_upright else "matrix"
    table = element("table", element("thead", head), element("tbody", rows), class_=kind)
    return figure(title, scrolling(table), note=note, numbers=below)


def confusion_matrix(title: str, counts: np.ndarray, labels: Sequence[str], *, note: object = None) -> Markup:
    """Confusion matrix: how often each true label (row) was predicted as each label (column), shaded by the share
    of the row.

    For more than 20 labels it shows those with most confusions among them; the whole matrix is collapsed
    below them.

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
        return figure(title, paragraph("No label was confused with another."), numbers=whole)
    block, num_wrong = counts[np.ix_(chosen, chosen)], int(counts.sum() - counts.trace())
    summary = (
        f"The {len(chosen)} of {len(labels):,} labels with the most confusions among them: "
        f"{int(block.sum() - block.trace()):,} of {num_wrong:,}."
    )
    return drawn(title, chosen, [summary, None if note is None else [" ", note]], whole)


def most_confused(counts: np.ndarray, num_labels: int) -> np.ndarray:
    """Indices of at most ``num_labels`` labels with many confusions among them, ascending.

    The label with the fewest confusions with the remaining ones is removed until ``num_labels`` remain and each is
    confused with another: the greedy algorithm for the densest subgraph (Charikar 2000).

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
