"""Settings of AdamW, and of the AdamW of 2018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bertkit.later import torch
from bertkit.training.optimizers.optimizer import OptimizerSettings


@dataclass(frozen=True)
class AdamWSettings(OptimizerSettings):
    """AdamW as in torch (Loshchilov and Hutter 2019)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6

    def of_groups(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, self.learning_rate, self.betas, self.eps, fused=True)


@dataclass(frozen=True)
class AdamW2018Settings(AdamWSettings):
    """AdamW without bias correction, as BERT was trained."""

    def of_groups(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        from bertkit.training.optimizers.adamw_2018 import AdamW2018

        return AdamW2018(groups, self.learning_rate, self.betas, self.eps)
