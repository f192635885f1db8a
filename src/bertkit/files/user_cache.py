"""The user's folder for what can be computed again."""

import os
from pathlib import Path


def user_cache() -> Path | None:
    """``$XDG_CACHE_HOME/bertkit``, by default ``~/.cache/bertkit``; None for a user without a home folder, as some
    containers have."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return None if folder.startswith("~") else Path(folder) / "bertkit"
