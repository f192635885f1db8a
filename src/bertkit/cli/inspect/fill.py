"""bertkit inspect fill"""

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EXACT, PRETRAINED_MODEL, Compute, open_model
from bertkit.inference.pseudo_likelihood import Method


def command(
    text: str,
    /,
    *,
    shown: Shown = NOWHERE,
    top_k: int = 8,
    method: Method = "plain",
    model: str = PRETRAINED_MODEL,
    compute: Compute = EXACT,
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
    model
        A model with a masked LM head: a folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.inspection import inspect_fill, inspect_surprise

    opened = open_model(model, compute)
    if opened.tokenizer.vocabulary.special.mask in text:
        show(shown, lambda: inspect_fill(opened, text, top_k=top_k))
    else:
        show(shown, lambda: inspect_surprise(opened, text, method=method))
