"""Parts of model folders that are to be ignored although their meaning is unknown, in every model that is opened."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

_tensors: list[str] = []  # patterns; of the process, as a model may be opened on any thread
_config_keys: list[str] = []
_matched: set[str] = set()


@contextmanager
def ignoring(tensors: Sequence[str], config_keys: Sequence[str]) -> Iterator[set[str]]:
    """Ignore tensors and config keys of all models that this process opens within the context.

    Args:
        tensors: names, or patterns such as ``cls.extra.*``.

    Yields:
        The names and patterns that have matched so far.
    """
    _matched.clear()
    _tensors.extend(tensors)
    _config_keys.extend(config_keys)
    try:
        yield _matched
    finally:
        _tensors.clear()
        _config_keys.clear()


def is_ignored_tensor(name: str) -> bool:
    """Whether a stored tensor is ignored."""
    matching = [pattern for pattern in _tensors if fnmatchcase(name, pattern)]
    _matched.update(matching)
    return bool(matching)


def is_ignored_key(key: str) -> bool:
    """Whether a key of a config.json is ignored."""
    if key in _config_keys:
        _matched.add(key)
    return key in _config_keys
