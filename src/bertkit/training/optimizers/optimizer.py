"""Settings of an optimizer, the base class of all, and torch's optimizers stepped as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bertkit.executor import map_on_cores
from bertkit.tasks.field_types import NotNegative
from bertkit.tasks.settings import Choice

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    NamedParameters = list[tuple[str, nn.Parameter]]


@dataclass(frozen=True)
class OptimizerSettings(Choice, ABC):
    """An optimizer. Its fields are its settings; a subclass in a file and a line in `OPTIMIZERS` add an optimizer.

    Parameters
    ----------
    weight_decay
        Weight decay of matrices and embeddings, decoupled; biases and layer normalization have none, as published
        (google-research/bert, optimization.py).
    """

    weight_decay: NotNegative = 0.01

    takes_shards: ClassVar[bool] = True  # it can update a shard of a matrix

    @classmethod
    def kinds(cls) -> Mapping[str, type[OptimizerSettings]]:
        return OPTIMIZERS

    @abstractmethod
    def of_groups(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimizer of groups of parameters with their "weight_decay" and "lr"."""

    def of_parameters(
        self, parameters: NamedParameters, learning_rate: Callable[[str], float]
    ) -> list[torch.optim.Optimizer]:
        """Optimizers with a disjoint set of the parameters each: `of_groups` of all.

        Args:
            learning_rate: parameter name -> peak learning rate.
        """
        alike: dict[tuple[float, float], list[nn.Parameter]] = {}  # by weight decay and learning rate
        for name, parameter in parameters:
            decay = self.weight_decay if parameter.dim() >= 2 else 0.0
            alike.setdefault((decay, learning_rate(name)), []).append(parameter)
        groups = [{"params": members, "weight_decay": decay, "lr": rate} for (decay, rate), members in alike.items()]
        return [self.of_groups(groups)] if groups else []


OPTIMIZERS: dict[str, type[OptimizerSettings]] = {}
"""Optimizers by name, the value of the setting "optimizer"."""


class CombinedOptimizer:
    """Several optimizers stepped as one, in parallel on the CPU; each has a disjoint set of parameters."""

    def __init__(self, optimizers: list[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers
        self._device = self.param_groups[0]["params"][0].device

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of all optimizers, whose "lr" may be set."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> dict[Tensor, dict[str, Any]]:
        """State of each parameter."""
        return {parameter: state for optimizer in self.optimizers for parameter, state in optimizer.state.items()}

    def state_of(self, parameter: Tensor) -> dict[str, Any]:
        """The state of a parameter, to be filled in when a run is resumed."""
        for optimizer in self.optimizers:
            if any(parameter is other for group in optimizer.param_groups for other in group["params"]):
                return optimizer.state[parameter]
        raise AssertionError("every parameter has its optimizer")

    def step(self) -> None:
        for _ in map_on_cores(lambda optimizer: optimizer.step(), self.optimizers, self._device):
            pass
