"""bertkit inspect attention"""

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, Pair, Text, show


def command(
    text: Text, pair: Pair = None, /, *, layers: list[int] | None = None, inspected: InspectedInside = INSIDE
) -> None:
    """Attention of a text or a pair: all heads, lines between tokens, query times key.

    Parameters
    ----------
    layers
        Layers to show, counted from 1; may be repeated; by default all.
    """
    from bertkit.inspection import inspect_attention

    show(inspected, lambda model: inspect_attention(model, text, pair, layers=layers), has_rows=False)
