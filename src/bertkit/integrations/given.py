"""Models and indexes that are given as objects or by name, as a configuration file of a framework does."""

from os import PathLike
from pathlib import Path

from bertkit.errors import UsageError
from bertkit.model import Model, check_model, load
from bertkit.search.index import Index


def model_of(model: Model | str | Path) -> Model:
    """A model, loaded if it is a name for `bertkit.load`.

    Raises:
        CheckpointError: no such model.
        UsageError: neither a Model nor a name.
    """
    if isinstance(model, str | PathLike):
        return load(model)
    check_model(model)
    return model


def index_of(index: Index | str | Path) -> Index:
    """An index, opened if it is the path of its folder.

    Raises:
        StoreError: no index in the folder.
        UsageError: neither an Index nor a path.
    """
    if isinstance(index, str | PathLike):
        return Index.open(index)
    if not isinstance(index, Index):
        raise UsageError(f"the index is {type(index).__name__} ({index!r:.60}): expected an Index, or its folder")
    return index
