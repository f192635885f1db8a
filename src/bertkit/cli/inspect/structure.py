"""bertkit inspect structure"""

from pathlib import Path

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model


def command(
    train: Path,
    test: Path,
    /,
    *,
    limit: int = 1_000,
    rank: int = 64,
    epochs: int = 5,
    shown: Shown = NOWHERE,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """Structural probe: syntax trees in distances between vectors.

    Parameters
    ----------
    train
        A CoNLL-U file for training.
    test
        A CoNLL-U file for testing.
    limit
        Maximum number of sentences to read from each file.
    rank
        Rank of the linear map.
    epochs
        Number of passes over the training sentences.
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.inspection import inspect_structure, read_trees

    parts = [read_trees(path, limit) for path in (train, test)]
    show(shown, lambda: inspect_structure(open_model(model, compute), *parts, rank=rank, epochs=epochs))
