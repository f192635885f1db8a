"""bertkit plan"""

import sys
from dataclasses import asdict

from bertkit.cli.output import emit, note
from bertkit.cli.recipes import RunOptions
from bertkit.errors import UsageError


def command(*, options: RunOptions, seconds: float = 20.0) -> None:
    """Estimate what a pre-training run will take: tokens, hours, memory and files.

    The corpus is read once, and a sample of it is trained on for some seconds on this machine. Nothing is kept. The
    options are those of bertkit pretrain.

    Parameters
    ----------
    seconds
        Seconds to train on the sample, for each sequence length of the recipe.
    """
    from bertkit.pretraining import plan

    if not 1 <= seconds < float("inf"):
        raise UsageError(f"--seconds {seconds:g}: expected at least 1")
    facts = asdict(plan(options.read(), options.inputs(), device=options.device, seconds=seconds, log_line=note))
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
