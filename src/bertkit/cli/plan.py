"""bertkit plan"""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.output import emit, note
from bertkit.errors import UsageError


def command(
    *,
    corpus: Annotated[list[str], Parameter(consume_multiple=True)],
    recipe: str = "cpu-minutes",
    vocab: Path | None = None,
    model: str | None = None,
    new_head: bool = False,
    column: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    device: str = "auto",
    seconds: float = 20.0,
) -> None:
    """Estimate what a pre-training run will take: tokens, hours, memory and files.

    The corpus is read once, and a sample of it is trained on for some seconds on this machine. Nothing is kept.

    Parameters
    ----------
    corpus
        As for bertkit pretrain.
    recipe
        bert-2018, bert-modern, cpu-minutes, domain-adapt, or a TOML file.
    vocab
        A vocab.txt; by default one is trained on the sample.
    model
        The checkpoint to continue from, if the recipe does.
    new_head
        Give a checkpoint without a masked LM head a new one.
    column
        The column or key that holds the text.
    minutes
        Minutes to train, instead of the length in the recipe.
    steps
        Optimizer steps to train, instead of the length in the recipe.
    set
        Settings to change, such as training.batch_size=128 or model.size=small.
    device
        auto, cpu, cuda.
    seconds
        Seconds to train on the sample, for each sequence length of the recipe.
    """
    from bertkit.pretraining import Inputs, plan, read_recipe, with_length

    if not 1 <= seconds < float("inf"):
        raise UsageError(f"--seconds {seconds:g}: expected at least 1")
    changes = set or ()
    read = with_length(read_recipe(recipe, changes), num_steps=steps, minutes=minutes, changes=changes)
    inputs = Inputs(tuple(corpus), (), vocab, model, new_head, column)
    facts = plan(read, inputs, device=device, seconds=seconds, log_line=note).facts()
    if sys.stdout.isatty():
        for name, value in facts.items():
            print(f"{name:20} {_shown(name, value)}")
    else:
        emit([facts])


def _shown(name: str, value: object) -> str:
    """A figure for a terminal."""
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.1f} MiB"  # type: ignore[operator]
    if name == "padding_saved":
        return f"{value:.1%}"
    return f"{value:,.2f}" if isinstance(value, float) and value < 100 else (
        f"{value:,.0f}" if isinstance(value, int | float) else str(value)
    )  # fmt: skip
