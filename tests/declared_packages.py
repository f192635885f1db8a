"""Hides packages that an extra does not bring: tests of `make test` run with its own packages only, also where those of
other extras are installed."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def packages_of(distribution: str, extra: str) -> set[str]:
    """The canonical names of what a distribution with an extra requires, and of all that these require."""
    found: set[tuple[str, str]] = set()
    todo = [(distribution, extra)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            requirements = map(Requirement, requires(name) or ())
        except PackageNotFoundError:  # required on other systems only
            continue
        for required in requirements:
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(required.name), its_extra) for its_extra in ("", *required.extras)]
    return {name for name, _ in found}


def hide_other_extras(distribution: str, extra: str, besides: str) -> None:
    """Let imports of what only other extras of a distribution require fail, in this process, as if it were not
    installed.

    Args:
        besides: another extra whose own packages stay: libraries look for some of them, and not by an import.
    """
    required = map(Requirement, requires(distribution) or ())
    others = {
        canonicalize_name(one.name) for one in required if not (one.marker and one.marker.evaluate({"extra": besides}))
    }
    others -= packages_of(distribution, extra)
    hidden = {
        module
        for module, sources in packages_distributions().items()
        if others.issuperset(map(canonicalize_name, sources)) and module not in sys.modules
    }

    class Finder(PathFinder):
        @classmethod
        def find_spec(cls, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
            return None if name.partition(".")[0] in hidden else PathFinder.find_spec(name, path, target)

    sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
