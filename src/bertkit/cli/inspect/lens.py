"""bertkit inspect lens"""

from bertkit.cli.inspect.shown import LENS, InspectedLens, Pair, Text, show


def command(text: Text, pair: Pair = None, /, *, inspected: InspectedLens = LENS) -> None:
    """Predictions of each layer at each position of a text, through the masked LM head."""
    from bertkit.inspection import inspect_lens

    show(inspected, lambda model: inspect_lens(model, text, pair))
