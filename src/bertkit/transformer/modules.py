"""The parts of networks under the names of ``torch.nn``: with torch's parameters or, inside `in_arrays`, with arrays.

A network is written once. With arrays it holds what a folder stores, for inference on a CPU without torch; `as_torch`
makes torch's own of it, in the same memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, reduce
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.later import torch

_this_thread = threading.local()


@contextmanager
def in_arrays() -> Iterator[None]:
    """Make parts with arrays in this block and thread; their parameters have a shape, and no values until they are
    assigned."""
    _this_thread.is_in_arrays = True
    try:
        yield
    finally:
        _this_thread.is_in_arrays = False


def _is_in_arrays() -> bool:
    return getattr(_this_thread, "is_in_arrays", False)


class Module:
    """Base of the parts of this package: an instance is also torch's Module, or an `ArrayModule`."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        if cls in _BASES and not _is_in_arrays():
            return getattr(torch.nn, cls.__name__)(*arguments, **options)
        return object.__new__(_implementation(cls, _is_in_arrays()))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _empty, type(self)._written, vars(self)  # type: ignore[attr-defined]


class ModuleList(Module):
    """As torch's."""


class ModuleDict(Module):
    """As torch's."""


@cache
def _implementation(written: type, is_in_arrays: bool) -> type:
    if "_written" in vars(written):
        return written
    base = next(each for each in written.__mro__ if each in _BASES)
    other = _BASES[base] if is_in_arrays else getattr(torch.nn, base.__name__)
    if not is_in_arrays:
        import_module("bertkit.transformer.kernels.with_torch")  # torch's compiler cannot import it later
    names = {name: getattr(written, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(written.__name__, (written, other), names | {"_written": (written, is_in_arrays)})


def class_of(part: Any) -> type:
    """The class of a part as it is written."""
    return type(part)._written[0] if isinstance(part, Module) else type(part)  # type: ignore[attr-defined]


def _empty(written: type, is_in_arrays: bool) -> Any:
    return object.__new__(_implementation(written, is_in_arrays))


class ArrayModule:
    """What torch's Module offers for loading and inference, with arrays: the attributes are its parts."""

    training = False

    def __init__(self) -> None:
        pass

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.forward(*arguments, **options)  # type: ignore[attr-defined]

    def named_children(self) -> list[tuple[str, Any]]:
        """Attributes that are modules."""
        return [(name, value) for name, value in vars(self).items() if isinstance(value, ArrayModule)]

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
        """Each array with its name, in torch's order."""
        yield from ((prefix + name, value) for name, value in vars(self).items() if isinstance(value, np.ndarray))
        for name, child in self.named_children():
            yield from child.named_parameters(f"{prefix}{name}.")

    def get_submodule(self, name: str) -> Any:
        """The module of a name such as "encoder.pooler"."""
        return reduce(getattr, name.split("."), self)

    def eval(self) -> Any:
        return self


class _ArrayList(ArrayModule):
    def __init__(self, modules: Iterable[Any] = ()) -> None:
        for number, module in enumerate(modules):
            setattr(self, str(number), module)

    def __iter__(self) -> Iterator[Any]:
        return (module for _, module in self.named_children())

    def __len__(self) -> int:
        return len(self.named_children())

    def __getitem__(self, number: int) -> Any:
        return self.named_children()[number][1]


class _ArrayDict(ArrayModule):
    def __init__(self, modules: Mapping[str, Any] | None = None) -> None:
        vars(self).update(modules or {})

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(vars(self))

    def __contains__(self, name: object) -> bool:
        return name in vars(self)

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __setitem__(self, name: str, module: Any) -> None:
        vars(self)[name] = module

    def keys(self) -> Any:
        return vars(self).keys()

    def values(self) -> Any:
        return vars(self).values()

    def items(self) -> Any:
        return vars(self).items()


class ArrayLinear(ArrayModule):
    """Weight (N, K) and bias (N,) or None of ``x W^T + b``."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight, self.bias = parameter(out_features, in_features), parameter(out_features) if bias else None


class ArrayNorm(ArrayModule):
    """Weight and bias (K,) of a layer normalization."""

    def __init__(self, width: int, eps: float = 1e-5, bias: bool = True) -> None:
        self.normalized_shape, self.eps = (width,), eps
        self.weight, self.bias = parameter(width), parameter(width) if bias else None


class ArrayRmsNorm(ArrayModule):
    """Weight (K,) of a normalization by the root of the mean square."""

    def __init__(self, width: int, eps: float | None = None) -> None:
        self.normalized_shape, self.eps, self.weight = (width,), eps, parameter(width)


class ArrayDropout(ArrayModule):
    """No dropout."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p


class ArrayEmbedding(ArrayModule):
    """Rows (N, K) of a table."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = parameter(num_embeddings, embedding_dim)


_BASES: dict[type, type] = {Module: ArrayModule, ModuleList: _ArrayList, ModuleDict: _ArrayDict}
_PARTS: dict[str, type] = {
    "Linear": ArrayLinear, "LayerNorm": ArrayNorm, "RMSNorm": ArrayRmsNorm, "Dropout": ArrayDropout,
    "Embedding": ArrayEmbedding,
}  # fmt: skip


def _part(name: str, *arguments: Any, **options: Any) -> Any:
    return (_PARTS[name] if _is_in_arrays() else getattr(torch.nn, name))(*arguments, **options)


if TYPE_CHECKING:
    from torch import nn as nn
else:
    nn = SimpleNamespace(**{base.__name__: base for base in _BASES}, **{name: partial(_part, name) for name in _PARTS})
    """Those of torch's names that networks consist of."""


def table(num_rows: int, width: int) -> nn.Embedding:
    """An uninitialized embedding table: initializing on the meta device would import torch's compiler (1.5 s)."""
    if _is_in_arrays():
        return nn.Embedding(num_rows, width)
    return torch.nn.Embedding.from_pretrained(torch.empty(num_rows, width), freeze=False)


def parameter(*shape: int) -> Any:
    """A parameter of zeros; with arrays, only their shape."""
    return np.broadcast_to(np.float32(0), shape) if _is_in_arrays() else torch.nn.Parameter(torch.zeros(shape))


def assign(network: Any, values: Mapping[str, np.ndarray]) -> None:
    """Take arrays as the parameters of a network, by name, without copying them."""
    if isinstance(network, ArrayModule):
        for name, value in values.items():
            parent, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(parent), attribute, value)
    else:
        tensors = {name: torch.from_numpy(value) for name, value in values.items()}
        network.load_state_dict(tensors, strict=False, assign=True)


def as_torch(part: Any) -> Any:
    """The same network with torch's parameters in the same memory; those without values are on the meta device."""
    if isinstance(part, np.ndarray):
        tensor = torch.from_numpy(part) if part.flags.writeable else torch.empty(part.shape, device="meta")
        return torch.nn.Parameter(tensor)
    if not isinstance(part, ArrayModule):
        return part
    attributes = {name: as_torch(value) for name, value in vars(part).items()}
    name = next((name for name, kind in _PARTS.items() if type(part) is kind), None)
    if name is not None:
        with torch.device("meta"):
            new = _torch_part(name, part)
    else:
        written = type(part)._written[0]  # type: ignore[attr-defined]
        new = getattr(torch.nn, written.__name__)() if written in _BASES else _empty(written, False)
        if written not in _BASES:
            torch.nn.Module.__init__(new)
    for attribute, value in attributes.items():
        setattr(new, attribute, value)
    return new.eval()


def _torch_part(name: str, part: Any) -> Any:
    match name:
        case "Linear":
            return torch.nn.Linear(part.in_features, part.out_features, bias=part.bias is not None)
        case "LayerNorm":
            return torch.nn.LayerNorm(part.normalized_shape, part.eps, bias=part.bias is not None)
        case "RMSNorm":
            return torch.nn.RMSNorm(part.normalized_shape, part.eps)
        case "Dropout":
            return torch.nn.Dropout(part.p)
    return torch.nn.Embedding.from_pretrained(torch.empty(part.weight.shape), freeze=False)
