"""Settings of AdamW, and of the AdamW of 2018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bertkit.later import torch
from bertkit.tasks.field_types import AboveZero, Shares
from bertkit.training.optimizers.optimizer import OptimizerSettings


@dataclass(frozen=True)
class AdamWSettings(OptimizerSettings):
    """AdamW as in torch (Loshchilov and Hutter 2019).

    Parameters
    ----------
    betas
        Decay rates of the averages of AdamW.
    eps
        Added to the divisor of AdamW.
    """

    betas: Shares = (0.9, 0.999)
    eps: AboveZero = 1e-6

    name: ClassVar[str] = "adamw"

    def of_groups(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, betas=self.betas, eps=self.eps, fused=True)


@dataclass(frozen=True)
class AdamW2018Settings(AdamWSettings):
    """AdamW without bias correction, as BERT was trained."""

    name: ClassVar[str] = "adamw-2018"

    def of_groups(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        from bertkit.training.optimizers.adamw_2018 import AdamW2018

        return AdamW2018(groups, betas=self.betas, eps=self.eps)
