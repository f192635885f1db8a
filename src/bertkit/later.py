"""torch and the names of packages, imported when they are first used: commands that print help or look something up
need neither the seconds nor the memory.

Takes: attributes of torch; names that a package imports under ``if TYPE_CHECKING``.
Gives: torch, its ``F``, ``nn`` and ``Tensor``; ``__getattr__`` and ``__dir__`` of a package.
May import: errors.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import getsource
from typing import TYPE_CHECKING, Any

from bertkit.errors import DependencyError


class _Later:
    """A module that is imported when an attribute of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(sys.modules.get(self._name) or _imported(self._name), attribute)


class _LaterTensor:
    """torch's class in annotations, and for ``isinstance``: nothing is a tensor before torch is imported."""

    def __instancecheck__(self, value: object) -> bool:
        return is_torch_loaded() and isinstance(value, import_module("torch").Tensor)

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__


if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn
else:
    torch, F, nn = _Later("torch"), _Later("torch.nn.functional"), _Later("torch.nn")
    Tensor = _LaterTensor()

__all__ = [
    "F",
    "Tensor",
    "has_torch",
    "is_torch_loaded",
    "later_module",
    "modules_of_names",
    "nn",
    "on_demand",
    "torch",
    "without_torch",
]


def later_module(name: str) -> Any:
    """A module that imports torch, imported when an attribute of it is first used."""
    return _Later(name)


def _imported(name: str) -> Any:
    """A module.

    Raises:
        DependencyError: it needs torch, which is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise without_torch(error) from None


def without_torch(error: ModuleNotFoundError) -> ImportError:
    """The error to raise for a module that was not found: for torch, one that says how to install it."""
    if error.name != "torch":
        return error
    return DependencyError("this needs torch, which is not installed: pip install 'bertkit[torch]'")


@cache
def has_torch() -> bool:
    """Whether torch is installed."""
    try:
        return is_torch_loaded() or find_spec("torch") is not None
    except ImportError:
        return False


def is_torch_loaded() -> bool:
    """Whether anything has imported torch."""
    return "torch" in sys.modules


@cache
def modules_of_names(package: str) -> dict[str, str]:
    """The module of each public name of a package, as the imports under ``if TYPE_CHECKING`` of its ``__init__.py``
    say."""
    statements = ast.parse(getsource(sys.modules[package])).body
    imports = [one for branch in statements if isinstance(branch, ast.If) for one in branch.body]
    return {name.name: one.module or "" for one in imports if isinstance(one, ast.ImportFrom) for name in one.names}


def on_demand(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose ``__init__.py`` imports its names under ``if TYPE_CHECKING``:
    each is imported when it is first used. None may be the name of a module of the package, which would hide it.

    These imports are the only list of the names: "import name as name" makes a name public for type checkers, too.
    """

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(modules_of_names(package))
        if name.startswith("__") or name not in modules_of_names(package):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_imported(modules_of_names(package)[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *modules_of_names(package)})
