"""Optimizers by name, and the optimizer of a network; torch is imported when one is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bertkit.errors import UsageError
from bertkit.later import torch
from bertkit.training.optimizers.adamw import AdamW2018Settings, AdamWSettings
from bertkit.training.optimizers.muon_settings import MuonSettings
from bertkit.training.optimizers.optimizer import OPTIMIZERS, CombinedOptimizer, OptimizerSettings

if TYPE_CHECKING:
    from torch import nn

    from bertkit.training.optimizers.optimizer import NamedParameters

OPTIMIZERS |= {kind.name: kind for kind in (AdamWSettings, AdamW2018Settings, MuonSettings)}

__all__ = ["OPTIMIZERS", "AdamWSettings", "CombinedOptimizer", "OptimizerSettings", "make_optimizer"]


def make_optimizer(
    settings: OptimizerSettings,
    network: nn.Module,
    *,
    learning_rate: float,
    rate_factor: Callable[[str], float] = lambda name: 1.0,
) -> CombinedOptimizer:
    """Create the optimizer of a network's trainable parameters. Each group stores its peak rate as "peak_lr".

    Args:
        learning_rate: the peak rate.
        rate_factor: parameter name -> factor of ``learning_rate``.

    Raises:
        UsageError: an optimizer that cannot update shards, or no trainable parameter.
    """
    from bertkit.training.ranks import is_sharded

    has_shards = is_sharded(network)
    if has_shards and not settings.takes_shards:
        raise UsageError(f"optimizer={settings.name!r} requires whole matrices, not shards: choose adamw")
    combined = CombinedOptimizer(
        [
            optimizer
            for share in _shares(network, has_shards)
            for optimizer in settings.of_parameters(share, lambda name: learning_rate * rate_factor(name))
        ]
    )
    for group in combined.param_groups:
        group["peak_lr"] = group["lr"]
    return combined


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
