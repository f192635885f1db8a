"""Search over several runs: the only loop over jobs."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bertkit.training.job import Outcome


def search(
    jobs: Iterable[tuple[str, Callable[[], Outcome]]],
    record: Callable[[str, Outcome], None],
    choose: Callable[[], tuple[Sequence[Path], Sequence[Path]]],
) -> Outcome | None:
    """Run jobs one after the other, and remove the results of all but the best.

    Args:
        jobs: the name of each job without results, and the function that runs it; an iterator may end when its budget
            of time is spent.
        record: keeps the result of a job that ended.
        choose: the folders of all results so far, and those to keep.

    Returns:
        The outcome of a job that was stopped; None: all ended.
    """
    for name, start in jobs:
        outcome = start()
        if outcome.reason == "stopped":
            return outcome
        record(name, outcome)
        folders, best = choose()
        for folder in set(folders) - set(best):
            shutil.rmtree(folder, ignore_errors=True)
    return None
