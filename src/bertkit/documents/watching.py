"""Changes of files at and below paths, as they happen."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bertkit.documents.sources import is_inside
from bertkit.errors import required

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
    watch = required("watchfiles", "watching files needs watchfiles", "watch").watch
    return _changes(watch, list(paths), os.path.realpath(ignored))


def _changes(watch: Callable[..., Iterable[Any]], paths: list[str | Path], ignored: str) -> Iterator[None]:
    def is_wanted(change: Any, name: str) -> bool:
        path = Path(name)
        named = path.parent if path.name == ".gitignore" else path
        return not path.is_relative_to(ignored) and any(is_inside(str(named), folder) for folder in folders)

    options = {"rust_timeout": _MILLISECONDS, "yield_on_timeout": True, "ignore_permission_denied": True}
    while True:
        states, has_begun = [_state(path) for path in paths], False
        folders = [Path(os.path.realpath(path)) for path in filter(os.path.isdir, paths)]  # as changes name them
        for changes in watch(*folders, watch_filter=is_wanted, **options):
            if changes or not has_begun:
                yield
            has_begun = True
            if states != [_state(path) for path in paths]:
                break


def _state(path: str | Path) -> tuple[int, ...]:
    """What changes if a file changes, or if another file or folder is at the path."""
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return (state.st_dev, state.st_ino) + (() if stat.S_ISDIR(state.st_mode) else (state.st_size, state.st_mtime_ns))
