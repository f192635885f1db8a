"""Optimizers by name, and the optimizer of a network; torch is imported when one is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bertkit.errors import UsageError
from bertkit.later import torch
from bertkit.training.optimizers.adamw import AdamW2018Settings, AdamWSettings
from bertkit.training.optimizers.muon_settings import MuonSettings
from bertkit.training.optimizers.optimizer import CombinedOptimizer, OptimizerSettings

if TYPE_CHECKING:
    from torch import nn

    from bertkit.training.optimizers.optimizer import NamedParameters

OPTIMIZERS: dict[str, type[OptimizerSettings]] = {
    "adamw": AdamWSettings,
    "adamw-2018": AdamW2018Settings,
    "muon": MuonSettings,
}
"""Optimizers by name, the value of the setting "optimizer"."""

__all__ = ["OPTIMIZERS", "CombinedOptimizer", "OptimizerSettings", "make_optimizer"]


def make_optimizer(
    name: str, network: nn.Module, *, rate_factor: Callable[[str], float] = lambda name: 1.0, **settings: Any
) -> CombinedOptimizer:
    """Create the optimizer of a network's trainable parameters. Each group stores its peak rate as "peak_lr".

    Args:
        name: a key of OPTIMIZERS.
        rate_factor: parameter name -> factor of ``learning_rate``.
        settings: values of the fields of any optimizer; those of others are ignored.

    Raises:
        UsageError: an unknown name, an optimizer that cannot update shards, or no trainable parameter.
    """
    from bertkit.training.ranks import is_sharded

    kind, has_shards = optimizer_class(name), is_sharded(network)
    if has_shards and not kind.takes_shards:
        raise UsageError(f"optimizer={name!r} requires whole matrices, not shards: choose adamw")
    optimizer = kind(**{part.name: settings[part.name] for part in fields(kind) if part.name in settings})
    optimizers = [one for share in _shares(network, has_shards) for one in optimizer.of_parameters(share, rate_factor)]
    combined = CombinedOptimizer(optimizers)
    for group in combined.param_groups:
        group["peak_lr"] = group["lr"]
    return combined


def optimizer_class(name: str) -> type[OptimizerSettings]:
    """An optimizer by its name; raises a UsageError for an unknown one."""
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer={name!r}: expected one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def _shares(network: nn.Module, has_shards: bool) -> list[NamedParameters]:
    """Named trainable parameters, split into shares of similar size, one per core."""
    trainable = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    if not trainable:
        raise UsageError("every weight is frozen: expected some that train, so lower frozen_layers")
    on_cores = trainable[0][1].device.type == "cpu" and not has_shards
    shares: list[NamedParameters] = [[] for _ in range(torch.get_num_threads() if on_cores else 1)]
    for one in sorted(trainable, key=lambda one: -one[1].numel()):
        min(shares, key=lambda share: sum(parameter.numel() for _, parameter in share)).append(one)
    return [share for share in shares if share]
