"""Settings of Muon for the matrices of the layers, and AdamW for embeddings, heads, norms and biases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bertkit.tasks.field_types import AboveZero
from bertkit.training.optimizers.adamw import AdamWSettings

if TYPE_CHECKING:
    import torch

    from bertkit.training.optimizers.optimizer import NamedParameters


@dataclass(frozen=True)
class MuonSettings(AdamWSettings):
    """Orthogonalized momentum for matrices of the layers; AdamW for the others.

    Parameters
    ----------
    matrix_learning_rate
        Peak learning rate of the matrices of the layers (Jordan et al. 2024).
    """

    matrix_learning_rate: AboveZero = 0.02

    name: ClassVar[str] = "muon"
    takes_shards: ClassVar[bool] = False

    def of_parameters(
        self, parameters: NamedParameters, learning_rate: Callable[[str], float]
    ) -> list[torch.optim.Optimizer]:
        from bertkit.training.optimizers.muon import Muon

        matrices = {name: one for name, one in parameters if one.dim() == 2 and ".layers." in name}
        others = [(name, one) for name, one in parameters if name not in matrices]
        optimizers = super().of_parameters(others, learning_rate)
        if matrices:
            optimizers.append(Muon(matrices.values(), self.matrix_learning_rate, self.weight_decay))
        return optimizers
