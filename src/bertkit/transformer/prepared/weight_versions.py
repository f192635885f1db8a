"""Detection of changed weights, which have to be prepared again."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook


class WeightVersions:
    """Record of an encoder's weights, to detect later changes: modules, addresses and version counters of parameters.

    Written for speed, as it is compared before every inference. A change inside ``parameter.data``, such as
    ``parameter.data.mul_(2)``, is not seen, as torch does not count it: change weights in ``torch.no_grad()`` instead.
    """

    def __init__(self, encoder: nn.Module) -> None:
        modules = list(encoder.modules())
        # torch does not count the updates of parameters made in inference mode: such encoders are prepared again every
        # time.
        self._is_counted = not any(parameter.is_inference() for parameter in encoder.parameters())
        self._children = [(own, tuple(own.values())) for module in modules if (own := module._modules)]
        self._parameters = [
            (module._parameters, name, parameter, *_address_and_version(parameter))
            for module in modules for name, parameter in module._parameters.items() if self._is_counted
        ]  # fmt: skip

    def are_unchanged(self) -> bool:
        return (
            self._is_counted
            and all(tuple(own.values()) == children for own, children in self._children)
            and all(
                own.get(name) is parameter
                and (parameter is None or (parameter.data_ptr() == address and parameter._version == version))
                for own, name, parameter, address, version in self._parameters
            )
        )


def _address_and_version(parameter: Tensor | None) -> tuple[int, int]:
    return (0, 0) if parameter is None else (parameter.data_ptr(), parameter._version)


def _count_updates(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Count an optimizer's step in the versions of its parameters: fused optimizers write past torch's own count."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    increment_version([parameter for parameter in parameters if parameter.grad is not None])


register_optimizer_step_post_hook(_count_updates)
