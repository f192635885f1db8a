"""bertkit next-sentence"""

from typing import Literal

from bertkit.cli.models import EXACT, PRETRAINED_MODEL, Compute, open_model
from bertkit.cli.output import emit


def command(
    text: str,
    following: str,
    /,
    *,
    model: str = PRETRAINED_MODEL,
    on_long: Literal["error", "truncate"] = "error",
    compute: Compute = EXACT,
) -> None:
    """Probability that the second text follows the first.

    Parameters
    ----------
    text
        The first text.
    following
        The text that may follow it.
    model
        A model with a next sentence head: a folder, a hub name, or the import name of an installed model package.
    on_long
        Policy for pairs longer than the model's limit.
    """
    chosen = open_model(model, compute)
    probability = chosen.next_sentence_probability(text, following, on_long=on_long)
    emit([{"follows": probability >= 0.5, "score": probability}])
