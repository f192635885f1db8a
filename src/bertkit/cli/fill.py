"""bertkit fill"""

from dataclasses import asdict

from bertkit.cli.models import EXACT, Compute, open_model, pretrained_name
from bertkit.cli.output import emit
from bertkit.tokenizer.layout import OnLong


def command(
    text: str, /, *, model: str | None = None, top_k: int = 5, on_long: OnLong = "error", compute: Compute = EXACT
) -> None:
    """Predict the token at each [MASK] of a text.

    Parameters
    ----------
    text
        A text with at least one [MASK].
    model
        A model with a masked LM head: a folder, a hub name, or the import name of an installed model
        package; by default .demo/bert/model, which make demo-bert makes.
    top_k
        Number of tokens to show for each [MASK].
    on_long
        Policy for texts longer than the model's limit.
    """
    filled = open_model(pretrained_name(model), compute).fill_mask(text, top_k=top_k, on_long=on_long)
    emit({"offsets": list(mask.offsets), **asdict(candidate)} for mask in filled for candidate in mask.candidates)
