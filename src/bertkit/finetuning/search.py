"""Search over several runs: the only loop over jobs, and the best one's folder as the result."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bertkit.files.whole_files import whole_folder
from bertkit.finetuning.outcome import write_comparison
from bertkit.training import Outcome


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


def write_best(
    out: Path, best: Path, records: Sequence[str], outcome: Outcome, metric: str, scores: Mapping[str, float],
    change: Callable[[Path], None] = lambda folder: None,
) -> None:  # fmt: skip
    """Replace the folder of a search by the model of its best run, with the records of the search.

    Args:
        records: names of files in ``out/run``.
        change: changes the model.
        metric, scores: for the card; as in `write_comparison`.
    """
    with whole_folder(out, overwrite=True) as whole:
        shutil.copytree(best, whole, dirs_exist_ok=True)
        for name in records:
            shutil.copy(out / "run" / name, whole / "run" / name)
        change(whole)
        write_comparison(outcome, whole, metric, scores)
