"""bertkit inspect fill"""

from bertkit.cli.inspect.shown import PRETRAINED, ShownPretrained
from bertkit.inference.pseudo_likelihood import Method


def command(text: str, /, *, top_k: int = 8, method: Method = "plain", shown: ShownPretrained = PRETRAINED) -> None:
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

    shown.show(
        lambda model: (
            inspect_fill(model, text, top_k=top_k)
            if model.tokenizer.vocabulary.special.mask in text
            else inspect_surprise(model, text, method=method)
        )
    )
