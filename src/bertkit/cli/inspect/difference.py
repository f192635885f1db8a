"""bertkit inspect difference"""

from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, check_limit, write
from bertkit.cli.models import open_model
from bertkit.cli.output import Column
from bertkit.errors import UsageError

if TYPE_CHECKING:
    from bertkit.inspection import View


def command(texts: Path, /, *, column: Column = None, limit: int = 100, inspected: InspectedInside = INSIDE) -> None:
    """Differences of two models: layers, attention, weights, texts that changed most.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one text per row.
    limit
        Maximum number of texts to read.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_difference

    if inspected.against is None:
        raise UsageError("difference needs a second model: give --against")
    names = (inspected.model, inspected.against)
    check_limit(limit)
    rows = list(islice(read_texts(texts, column), limit))

    def view() -> "View":
        first, second = (open_model(name, inspected.compute) for name in names)
        return inspect_difference(first, second, rows, names=names)

    write(inspected, view, texts)
