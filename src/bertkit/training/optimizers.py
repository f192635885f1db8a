"""Optimizers: AdamW, the AdamW of 2018, Muon.

Weight decay excludes biases and layer normalization, as published (google-research/bert, optimization.py).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.errors import UsageError
from bertkit.executor import map_on_cores
from bertkit.training.ranks import is_sharded
from bertkit.training.settings import OPTIMIZERS
from bertkit.transformer.kernels.linear import has_fast_bfloat16


class AdamW2018(torch.optim.AdamW):
    """Adam with decoupled weight decay and without bias correction, as BERT was trained.

    ``m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr (m / (sqrt(v) + eps) + decay w)``
    (google-research/bert, optimization.py, AdamWeightDecayOptimizer): torch's AdamW at a step so late that its bias
    correction has no effect.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
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


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` with Nesterov momentum, orthogonalized in float32 on a CPU where that is faster than bfloat16.

    A CPU without fast instructions for bfloat16 takes 10 to 20 times as long in it (AVX2, matrices of 256 to 1,024 rows
    and columns).
    """

    @torch.no_grad()
    def step(self) -> None:  # pyrefly: ignore[bad-override]
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                average = state["momentum_buffer"].lerp_(matrix.grad, 1 - group["momentum"])
                update = _orthogonal(matrix.grad.lerp(average, group["momentum"]), group)
                num_rows, num_columns = matrix.shape
                rate = group["lr"] * max(1, num_rows / num_columns) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)


def _orthogonal(matrix: Tensor, group: dict[str, Any]) -> Tensor:
    """The matrix with all singular values near 1, by the iteration of Newton and Schulz (Jordan et al. 2024)."""
    is_fast = matrix.device.type != "cpu" or has_fast_bfloat16()
    x = matrix.to(torch.bfloat16 if is_fast else torch.float32)
    is_tall = len(x) > x.shape[1]
    x = x.T if is_tall else x
    x = x / x.norm().clamp(min=group["eps"])
    a, b, c = group["ns_coefficients"]
    for _ in range(group["ns_steps"]):
        products = x @ x.T
        products = torch.addmm(products, products, products, beta=b, alpha=c)
        x = torch.addmm(x, products, x, beta=a)
    return x.T if is_tall else x


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


def make_optimizer(
    name: str,
    network: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    matrix_learning_rate: float = 0.02,
    rate_factor: Callable[[str], float] = lambda name: 1.0,
) -> CombinedOptimizer:
    """Create the optimizer of a network's trainable parameters. Each group stores its peak rate as "peak_lr".

    Args:
        name: one of OPTIMIZERS. "muon" updates matrices of the layers by orthogonalized momentum (Jordan et al.
            2024) at ``matrix_learning_rate``, and embeddings, heads, norms and biases by AdamW.
        rate_factor: parameter name -> factor of ``learning_rate``.

    Raises:
        UsageError: an unknown name, or no trainable parameter.
    """
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer={name!r}: expected one of {', '.join(OPTIMIZERS)}")
    if name == "muon" and is_sharded(network):
        raise UsageError("optimizer='muon' requires whole matrices, not shards: choose adamw")
    optimizers: list[torch.optim.Optimizer] = []
    for share in _shares(network):
        matrices = [p for key, p in share if name == "muon" and p.dim() == 2 and ".layers." in key]
        alike: dict[tuple[float, float], list[nn.Parameter]] = {}  # by weight decay and learning rate
        for key, parameter in share:
            if not any(parameter is matrix for matrix in matrices):
                decay = weight_decay if parameter.dim() >= 2 else 0.0
                alike.setdefault((decay, learning_rate * rate_factor(key)), []).append(parameter)
        groups = [{"params": chosen, "weight_decay": decay, "lr": rate} for (decay, rate), chosen in alike.items()]
        if groups and name == "adamw-2018":
            optimizers.append(AdamW2018(groups, learning_rate, betas, eps))
        elif groups:
            optimizers.append(torch.optim.AdamW(groups, learning_rate, betas, eps, fused=True))
        if matrices:
            optimizers.append(Muon(matrices, matrix_learning_rate, weight_decay))
    combined = CombinedOptimizer(optimizers)
    for group in combined.param_groups:
        group["peak_lr"] = group["lr"]
    return combined


def _shares(network: nn.Module) -> list[list[tuple[str, nn.Parameter]]]:
    """Named trainable parameters, split into shares of similar size, one per core."""
    trainable = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    if not trainable:
        raise UsageError("every weight is frozen: expected some that train, so lower frozen_layers")
    on_cores = trainable[0][1].device.type == "cpu" and not is_sharded(network)
    shares: list[list[tuple[str, nn.Parameter]]] = [[] for _ in range(torch.get_num_threads() if on_cores else 1)]
    for one in sorted(trainable, key=lambda one: -one[1].numel()):
        min(shares, key=lambda share: sum(parameter.numel() for _, parameter in share)).append(one)
    return [share for share in shares if share]
