"""bertkit inspect difference"""

from typing import TYPE_CHECKING

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, Limit, Texts, some_texts, write
from bertkit.cli.models import open_model
from bertkit.cli.output import Column
from bertkit.errors import UsageError

if TYPE_CHECKING:
    from bertkit.inspection import View


def command(texts: Texts, /, *, column: Column = None, limit: Limit = 100, inspected: InspectedInside = INSIDE) -> None:
    """Differences of two models: layers, attention, weights, texts that changed most."""
    from bertkit.inspection import inspect_difference

    if inspected.against is None:
        raise UsageError("difference needs a second model: give --against")
    names = (inspected.model, inspected.against)
    rows = some_texts(texts, column, limit)

    def view() -> "View":
        first, second = (open_model(name, inspected.compute) for name in names)
        return inspect_difference(first, second, rows, names=names)

    write(inspected, view, texts)
