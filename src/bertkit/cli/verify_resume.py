"""bertkit verify-resume"""

import sys
import tempfile
from pathlib import Path

from bertkit.cli.output import Values, emit, note
from bertkit.errors import checked_count


def command(
    *training: str,
    corpus: Values = None,
    recipe: str = "cpu-minutes",
    objective: str | None = None,
    model: str | None = None,
    new_head: bool = False,
    num_steps: int = 60,
    set: Values = None,
    kills: int = 3,
    processes: int = 1,
    seed: int = 0,
) -> None:
    """Kill a short run at random moments, resume it, and compare its weights with those of an uninterrupted run.

    It is a short pre-training, or any command that trains: bertkit verify-resume -- finetune similarity --train FILE
    --save-every 5. The verdict is exact, different, or inconclusive, if no killed run resumed from a checkpoint: then
    use more steps. Ends with exit code 1 unless it is exact.

    Parameters
    ----------
    training
        After --, a command that trains and its arguments, without --out; by default pretrain, with the options below.
    corpus
        As for pretrain; by default the documentation of the running Python.
    recipe, objective
        As for pretrain.
    model
        The checkpoint to continue from, as for pretrain.
    new_head
        As for pretrain.
    num_steps
        Number of steps to train.
    set
        Settings to change, as for pretrain.
    kills
        Number of kills.
    processes
        Number of processes that train together, as under torchrun.
    seed
        Random seed of the moments to kill at.
    """
    from bertkit.cli.killed_runs import verify_resume

    for name, number in (("num_steps", num_steps), ("kills", kills), ("processes", processes)):
        checked_count(name, number)
    with tempfile.TemporaryDirectory() as folder:
        arguments = training or _pretraining(corpus, recipe, objective, model, new_head, num_steps, set)
        check = verify_resume(arguments, Path(folder), num_kills=kills, seed=seed, log=note, num_ranks=processes)
    emit([{"verdict": check.verdict, "uninterrupted": check.uninterrupted, "resumed": check.resumed,
           "killed_after_steps": list(check.killed_after_steps),
           "resumed_from_steps": list(check.resumed_from_steps)}])  # fmt: skip
    if check.verdict != "exact":
        sys.exit(1)


def _pretraining(
    corpus: list[str] | None, recipe: str, objective: str | None, model: str | None, new_head: bool, num_steps: int,
    set: list[str] | None,
) -> list[str]:  # fmt: skip
    """The arguments of a short pre-training."""
    arguments = ["pretrain", "--corpus", *(corpus or ["python-docs"]), "--recipe", recipe]
    arguments += ["--num-steps", str(num_steps), "--save-every", str(max(1, num_steps // 6))]
    arguments += ["--set", "model.size=tiny", "vocabulary.vocab_size=2000", *(set or ())]
    if model is not None:
        arguments += ["--model", model]
    if objective is not None:
        arguments += ["--objective", objective]
    if new_head:
        arguments.append("--new-head")
    return arguments
