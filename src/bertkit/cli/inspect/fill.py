"""bertkit inspect fill"""

from typing import TYPE_CHECKING, Literal

from bertkit.cli.inspect.shown import PRETRAINED, InspectedPretrained, show
from bertkit.errors import UsageError

if TYPE_CHECKING:
    from bertkit.inspection import View
    from bertkit.model import Model


def command(
    text: str,
    /,
    *,
    top_k: int | None = None,
    method: Literal["plain", "l2r"] | None = None,
    inspected: InspectedPretrained = PRETRAINED,
) -> None:
    """Predictions for each [MASK] of a text; without [MASK], the surprisal of each token.

    Parameters
    ----------
    text
        The text, with or without [MASK].
    top_k
        Number of tokens to show for each [MASK], by default 8.
    method
        Without [MASK]: plain, the default, hides one token at a time, l2r also the later pieces of its word.
    """
    from bertkit.inspection import inspect_fill, inspect_surprise

    def view(model: "Model") -> "View":
        mask = model.tokenizer.vocabulary.special.mask
        if mask in text:
            if method is not None:
                raise UsageError(f"--method is for a text without {mask}: omit it")
            return inspect_fill(model, text, **({} if top_k is None else {"top_k": top_k}))
        if top_k is not None:
            raise UsageError(f"--top-k is for a text with {mask}: omit it")
        return inspect_surprise(model, text, method=method or "plain")

    show(inspected, view)
