"""bertkit verify-resume"""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.output import emit, note


def command(
    *,
    corpus: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    recipe: str = "cpu-minutes",
    steps: int = 60,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    kills: int = 3,
    seed: int = 0,
) -> None:
    """Kill a short run at random moments, go on with it, and compare its weights with an uninterrupted run's.

    The verdict is exact, different, or inconclusive, where no killed run went on from a checkpoint: give it more steps.
    Ends with exit code 1 unless it is exact.

    Parameters
    ----------
    corpus
        As for pretrain; the running Python's documentation if nothing else is named.
    recipe
        As for pretrain.
    steps
        How many steps to train.
    set
        Settings to change, as for pretrain.
    kills
        How often to kill.
    seed
        Of the moments.
    """
    from bertkit.pretraining.verify_resume import verify_resume

    changes = [f"training.save_every={max(1, steps // 6)}", "model.size=tiny", "vocabulary.size=2000", *(set or ())]
    arguments = ["--corpus", *(corpus or ["python-docs"]), "--recipe", recipe, "--steps", str(steps), "--set", *changes]
    with tempfile.TemporaryDirectory() as folder:
        check = verify_resume(arguments, Path(folder), num_kills=kills, seed=seed, tell=note)
    emit([{"verdict": check.verdict, "uninterrupted": check.uninterrupted, "resumed": check.resumed,
           "killed_after_steps": list(check.killed_after_steps),
           "went_on_from_steps": list(check.went_on_from_steps)}])  # fmt: skip
    if check.verdict != "exact":
        sys.exit(1)
