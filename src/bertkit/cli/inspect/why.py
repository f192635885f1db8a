"""bertkit inspect why"""

from bertkit.cli.inspect.shown import ENCODER, Inspected, show
from bertkit.errors import UsageError


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    similar: str | None = None,
    label: str | None = None,
    steps: int = 50,
    inspected: Inspected = ENCODER,
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
    """
    from bertkit.inspection import inspect_similarity, inspect_why

    if similar is not None and (pair is not None or label is not None):
        raise UsageError("--similar explains the cosine of two texts: it cannot be combined with a pair or --label")
    if similar is None:
        show(inspected, lambda model: inspect_why(model, text, pair, label=label, steps=steps))
    else:
        show(inspected, lambda model: inspect_similarity(model, text, similar))
