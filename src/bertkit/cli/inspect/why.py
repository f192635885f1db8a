"""bertkit inspect why"""

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, show
from bertkit.errors import UsageError


def command(
    text: str,
    pair: str | None = None,
    /,
    *,
    similar: str | None = None,
    label: str | None = None,
    steps: int | None = None,
    inspected: InspectedInside = INSIDE,
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
        Number of points on the path of integrated gradients, by default 50.
    """
    from bertkit.inspection import inspect_similarity, inspect_why

    if similar is None:
        options = {} if steps is None else {"steps": steps}
        show(inspected, lambda model: inspect_why(model, text, pair, label=label, **options))
        return
    if any(given is not None for given in (pair, label, steps)):
        raise UsageError(
            "--similar explains the cosine of two texts: it cannot be combined with a pair, --label or --steps"
        )
    show(inspected, lambda model: inspect_similarity(model, text, similar))
