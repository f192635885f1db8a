"""bertkit inspect input"""

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, show


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    inspected: InspectedInside = INSIDE,
) -> None:
    """The embeddings of a text, each summand separately, and the similarity of positions.

    Parameters
    ----------
    text
        The text; a literal [MASK] becomes that token.
    pair
        A second text.
    """
    from bertkit.inspection import inspect_input

    show(inspected, lambda model: inspect_input(model, text, pair), has_rows=False)
