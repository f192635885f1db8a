"""bertkit inspect input"""

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, Pair, Text, show


def command(text: Text, pair: Pair = None, /, *, inspected: InspectedInside = INSIDE) -> None:
    """The embeddings of a text, each summand separately, and the similarity of positions."""
    from bertkit.inspection import inspect_input

    show(inspected, lambda model: inspect_input(model, text, pair), has_rows=False)
