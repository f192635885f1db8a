"""bertkit inspect probe"""

from pathlib import Path
from typing import Literal

from bertkit.cli.inspect.shown import ENCODER, Inspected, show

Label = Literal["tags", "relations"]


def command(
    train: Path,
    test: Path,
    /,
    *,
    label: Label = "tags",
    limit: int = 1_000,
    inspected: Inspected = ENCODER,
) -> None:
    """Accuracy of a linear classifier on each layer, compared with a control task, layer 0 and a random encoder.

    Parameters
    ----------
    train
        A CoNLL-U file for training.
    test
        A CoNLL-U file for testing.
    label
        tags, parts of speech, or relations, of a word to its head.
    limit
        Maximum number of sentences to read from each file.
    """
    from bertkit.inspection import inspect_probes, read_trees

    parts = [read_trees(path, limit) for path in (train, test)]
    show(inspected, lambda model: inspect_probes(model, *parts, label=label))
