"""bertkit inspect lens"""

from bertkit.cli.inspect.shown import LENS, InspectedLens, show


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    inspected: InspectedLens = LENS,
) -> None:
    """Predictions of each layer at each position of a text, through the masked LM head.

    Parameters
    ----------
    text
        The text; a literal [MASK] becomes that token.
    pair
        A second text.
    """
    from bertkit.inspection import inspect_lens

    show(inspected, lambda model: inspect_lens(model, text, pair))
