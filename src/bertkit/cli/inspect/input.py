"""bertkit inspect input"""

from bertkit.cli.inspect.shown import DEFAULT, Shown


def command(text: str, pair: str | None = None, /, *, shown: Shown = DEFAULT) -> None:
    """The embeddings of a text, each summand separately, and the similarity of positions.

    Parameters
    ----------
    text
        The text; a literal [MASK] becomes that token.
    pair
        A second text.
    """
    from bertkit.inspection import inspect_input

    shown.show(lambda model: inspect_input(model, text, pair))
