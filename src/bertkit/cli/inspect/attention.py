"""bertkit inspect attention"""

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, show


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    layers: list[int] | None = None,
    inspected: InspectedInside = INSIDE,
) -> None:
    """Attention of a text or a pair: all heads, lines between tokens, query times key.

    Parameters
    ----------
    text
        The text; a literal [MASK] becomes that token.
    pair
        A second text.
    layers
        Layers to show, counted from 1; may be repeated; by default all.
    """
    from bertkit.inspection import inspect_attention

    show(inspected, lambda model: inspect_attention(model, text, pair, layers=layers), has_rows=False)
