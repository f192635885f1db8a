"""From gradients to weights: AdamW, the optimizer of 2018, Muon.

Weight decay keeps off biases and layer normalization, as published (google-research/bert, optimization.py).
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.errors import UsageError

OPTIMIZERS = ("adamw", "adamw-2018", "muon")

_BETAS_2018, _EPS_2018 = (0.9, 0.999), 1e-6


class AdamW2018(torch.optim.Optimizer):
    """Adam with decoupled weight decay and without bias correction, as BERT was trained.

    ``m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr (m / (sqrt(v) + eps) + decay w)``
    (google-research/bert, optimization.py, AdamWeightDecayOptimizer).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = _BETAS_2018,
        eps: float = _EPS_2018,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            states = [self.state[parameter] for parameter in parameters]
            for parameter, state in zip(parameters, states, strict=True):
                if not state:
                    state["m"], state["v"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            gradients = [parameter.grad for parameter in parameters]
            m, v = [state["m"] for state in states], [state["v"] for state in states]
            beta1, beta2 = group["betas"]
            torch._foreach_lerp_(m, gradients, 1 - beta1)
            torch._foreach_mul_(v, beta2)
            torch._foreach_addcmul_(v, gradients, gradients, 1 - beta2)
            divisors = torch._foreach_sqrt(v)
            torch._foreach_add_(divisors, group["eps"])
            updates = torch._foreach_div(m, divisors)
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
            torch._foreach_add_(parameters, updates, alpha=-group["lr"])


class Together:
    """Several optimizers as one: each has parameters of its own."""

    def __init__(self, optimizers: list[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all; setting their "lr" sets it."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> dict[Tensor, dict[str, Any]]:
        """What is kept of each parameter."""
        return {parameter: state for optimizer in self.optimizers for parameter, state in optimizer.state.items()}

    def state_of(self, parameter: Tensor) -> dict[str, Any]:
        """What is kept of a parameter, for filling in when a run goes on."""
        for optimizer in self.optimizers:
            if any(parameter is other for group in optimizer.param_groups for other in group["params"]):
                return optimizer.state[parameter]
        raise AssertionError("every parameter has its optimizer")

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


def make_optimizer(
    name: str,
    network: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    matrix_learning_rate: float,
) -> Together:
    """The optimizer of a network's trainable parameters. Each group keeps its peak rate as "peak_lr".

    Args:
        name: one of OPTIMIZERS. "muon" moves the matrices of the layers by orthogonalized momentum (Jordan et al.
            2024) at ``matrix_learning_rate``, and embeddings, heads, norms and biases by AdamW.

    Raises:
        UsageError: an unknown name.
    """
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer={name!r}: expected one of {', '.join(OPTIMIZERS)}")
    trainable = {key: parameter for key, parameter in network.named_parameters() if parameter.requires_grad}
    matrices = [p for key, p in trainable.items() if name == "muon" and p.dim() == 2 and ".layers." in key]
    others = [p for p in trainable.values() if not any(p is matrix for matrix in matrices)]
    decays = [p for p in others if p.dim() >= 2]
    stays = [p for p in others if p.dim() < 2]
    groups = [
        {"params": group, "weight_decay": decay} for group, decay in ((decays, weight_decay), (stays, 0.0)) if group
    ]
    optimizers: list[torch.optim.Optimizer] = []
    if name == "adamw-2018":
        optimizers.append(AdamW2018(groups, learning_rate, betas, eps))
    elif groups:
        optimizers.append(torch.optim.AdamW(groups, learning_rate, betas, eps, fused=True))
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, matrix_learning_rate, weight_decay))
    together = Together(optimizers)
    assert sum(len(group["params"]) for group in together.param_groups) == len(trainable)
    for group in together.param_groups:
        group["peak_lr"] = group["lr"]
    return together
