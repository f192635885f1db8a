"""Changes of files at and below paths, as they happen."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bertkit.documents.sources import is_inside
from bertkit.errors import DependencyError

_MILLISECONDS = 1000
"""Time between two looks at the paths themselves."""


def changes_at(paths: Iterable[str | Path], ignored: str | Path) -> Iterator[None]:
    """Watch files, and folders with all that is below them: yields once when this has begun, and after each change,
    and does not end.

    Args:
        paths: files and folders. What is missing, or replaced, is watched as soon as it is there.
        ignored: a folder whose files are not watched.

    Raises:
        DependencyError: watchfiles is not installed.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise DependencyError("watching files needs watchfiles: pip install 'bertkit[watch]'") from None
    return _changes(watch, [Path(os.path.realpath(path)) for path in paths], Path(os.path.realpath(ignored)))


def _changes(watch: Callable[..., Iterable[Any]], paths: list[Path], ignored: Path) -> Iterator[None]:
    def is_wanted(change: Any, name: str) -> bool:
        path = Path(name)
        named = path.parent if path.name == ".gitignore" else path
        return not path.is_relative_to(ignored) and any(is_inside(str(named), folder) for folder in paths)

    options = {"rust_timeout": _MILLISECONDS, "yield_on_timeout": True, "ignore_permission_denied": True}
    while True:
        states, has_begun = [_state(path) for path in paths], False
        for changes in watch(*filter(os.path.isdir, paths), watch_filter=is_wanted, **options):
            if changes or not has_begun:
                yield
            has_begun = True
            if states != [_state(path) for path in paths]:
                break


def _state(path: Path) -> tuple[int, ...]:
    """What changes if a file changes, or if another file or folder is at the path."""
    try:
        state = path.stat()
    except OSError:
        return ()
    return (state.st_dev, state.st_ino) + (() if path.is_dir() else (state.st_size, state.st_mtime_ns))
