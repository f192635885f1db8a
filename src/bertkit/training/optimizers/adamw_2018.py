"""The AdamW of 2018, without bias correction."""

from collections.abc import Iterable
from typing import Any

import torch


class AdamW2018(torch.optim.AdamW):
    """Adam with decoupled weight decay and without bias correction, as BERT was trained.

    ``m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr (m / (sqrt(v) + eps) + decay w)``
    (google-research/bert, optimization.py, AdamWeightDecayOptimizer): torch's AdamW at a step so late that its bias
    correction has no effect.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, fused=True)
        for parameter in (parameter for group in self.param_groups for parameter in group["params"]):
            self.state[parameter] = {
                "step": torch.tensor(_LATE, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


_LATE = 1e9
"""Float32 step count at which adding 1 has no effect."""
