"""bertkit inspect lens"""

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EXACT, PRETRAINED_MODEL, Compute, open_model


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    shown: Shown = NOWHERE,
    model: str = PRETRAINED_MODEL,
    compute: Compute = EXACT,
) -> None:
    """Predictions of each layer at each position of a text, through the masked LM head.

    Parameters
    ----------
    text
        The text; a literal [MASK] becomes that token.
    pair
        A second text.
    model
        A model with a masked LM head: a folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.inspection import inspect_lens

    show(shown, lambda: inspect_lens(open_model(model, compute), text, pair))
