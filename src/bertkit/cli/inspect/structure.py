"""bertkit inspect structure"""

from pathlib import Path

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, SentenceLimit, show
from bertkit.errors import checked_count


def command(
    train: Path,
    test: Path,
    /,
    *,
    limit: SentenceLimit = 1_000,
    rank: int = 64,
    epochs: int = 5,
    inspected: InspectedInside = INSIDE,
) -> None:
    """Structural probe: syntax trees in distances between vectors.

    Parameters
    ----------
    train
        A CoNLL-U file for training.
    test
        A CoNLL-U file for testing.
    rank
        Rank of the linear map.
    epochs
        Number of passes over the training sentences.
    """
    from bertkit.inspection import inspect_structure, read_trees

    checked_count("limit", limit)
    parts = [read_trees(path, limit) for path in (train, test)]
    show(inspected, lambda model: inspect_structure(model, *parts, rank=rank, epochs=epochs), train, test)
