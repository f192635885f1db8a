"""bertkit inspect why"""

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    similar: str | None = None,
    label: str | None = None,
    steps: int = 50,
    shown: Shown = NOWHERE,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """Tokens that support the prediction of a fine-tuned model; with --similar, that make two texts similar.

    Parameters
    ----------
    text
        The text.
    pair
        A second text, for models of pairs.
    similar
        Another text: show the contribution of each pair of tokens to the cosine.
    label
        The label to explain; by default the predicted one.
    steps
        Number of points on the path of integrated gradients.
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.inspection import inspect_similarity, inspect_why

    opened = open_model(model, compute)
    if similar is None:
        show(shown, lambda: inspect_why(opened, text, pair, label=label, steps=steps))
    else:
        show(shown, lambda: inspect_similarity(opened, text, similar))
