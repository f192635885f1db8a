"""bertkit inspect input"""

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    shown: Shown = NOWHERE,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """The embeddings of a text, each summand separately, and the similarity of positions.

    Parameters
    ----------
    text
        The text; a literal [MASK] becomes that token.
    pair
        A second text.
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.inspection import inspect_input

    show(shown, lambda: inspect_input(open_model(model, compute), text, pair))
