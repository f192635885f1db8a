"""Muon, momentum whose matrices are orthogonalized (Jordan et al. 2024)."""

from typing import Any

import torch
from torch import Tensor

from bertkit.transformer.kernels.linear import has_fast_bfloat16


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
