"""bertkit next-sentence"""

from typing import Literal

from bertkit.cli.models import EXACT, Compute, open_model, pretrained_name
from bertkit.cli.output import emit


def command(
    text: str,
    following: str,
    /,
    *,
    model: str | None = None,
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
        A model with a next sentence head: a folder, a hub name, or the import name of an installed model
        package; by default .demo/bert/model, which make demo-bert makes.
    on_long
        What to do with a pair longer than the model's limit: refuse it, or cut the longer text.
    """
    chosen = open_model(pretrained_name(model), compute)
    probability = chosen.next_sentence_probability(text, following, on_long=on_long)
    emit([{"follows": probability >= 0.5, "score": probability}])
