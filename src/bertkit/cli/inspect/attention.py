"""bertkit inspect attention"""

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    shown: Shown = NOWHERE,
    layers: list[int] | None = None,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
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
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.inspection import inspect_attention

    show(shown, lambda: inspect_attention(open_model(model, compute), text, pair, layers=layers))
