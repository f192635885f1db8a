"""bertkit inspect fill"""

from typing import TYPE_CHECKING

from bertkit.cli.inspect.shown import PRETRAINED, InspectedPretrained, show
from bertkit.inference.pseudo_likelihood import Method

if TYPE_CHECKING:
    from bertkit.inspection import View
    from bertkit.model import Model


def command(
    text: str,
    /,
    *,
    top_k: int = 8,
    method: Method = "plain",
    inspected: InspectedPretrained = PRETRAINED,
) -> None:
    """Predictions for each [MASK] of a text; without [MASK], the surprisal of each token.

    Parameters
    ----------
    text
        The text, with or without [MASK].
    top_k
        Number of tokens to show for each [MASK].
    method
        Without [MASK]: plain hides one token at a time, l2r also the later pieces of its word.
    """
    from bertkit.inspection import inspect_fill, inspect_surprise

    def view(model: "Model") -> "View":
        if model.tokenizer.vocabulary.special.mask in text:
            return inspect_fill(model, text, top_k=top_k)
        return inspect_surprise(model, text, method=method)

    show(inspected, view)
