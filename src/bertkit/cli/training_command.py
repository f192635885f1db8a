"""What all commands that train share: the processes of torchrun, stop signals, the last line, the row of results."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import emit, note

if TYPE_CHECKING:
    from bertkit.training import Outcome, Ranks


def run_training(
    command: str, out: Path, device: str, start: Callable[["Ranks", Callable[[], bool]], dict[str, Any]]
) -> None:
    """Train in every process of torchrun, and print the results in the first one.

    Args:
        command: its name, for the line that says how a stopped run is resumed.
        out: the folder of the run.
        start: trains with the ranks until the function that it is given returns True; returns the row to print, with
            the ``reason`` for the end.
    """
    from bertkit.training import Ranks, stop_signals

    with stop_signals(note) as should_stop:
        ranks = Ranks.from_environment(device)
        row = start(ranks, should_stop)
        ranks.shutdown()
    if ranks.is_first:
        if row["reason"] == "stopped":
            note(f"stopped and saved; resume with: bertkit {command} ... --out {out} --resume")
        emit([row])
    ranks.exit()


def result_row(out: Path, outcome: "Outcome", **facts: Any) -> dict[str, Any]:
    """The row of results of a trained model, to print."""
    ending = {"reason": outcome.reason, "step": outcome.step, "best_step": outcome.best_step}
    return {"model": str(out), **ending, **facts, **outcome.metrics}


def check_one_process(work: str) -> None:
    """Raise a UsageError if torchrun started several processes for work that one does alone."""
    from bertkit.training import Ranks

    Ranks.from_environment().check_single(work)
