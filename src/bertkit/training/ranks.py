"""The processes that train together, as torchrun starts them; a single process is a rank of one.

Every rank computes its share of each batch, and gradients are summed over ranks. Each holds the whole network, or,
where that is too large for one, a shard of every parameter (`fully_shard`; Zhao et al. 2023, "PyTorch FSDP").
"""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertkit.errors import UsageError


class Ranks:
    """The rank of this process among those that train together."""

    def __init__(self, rank: int = 0, num_ranks: int = 1, long_timeout_group: Any = None) -> None:
        self.rank, self.num_ranks, self._long_timeout_group = rank, num_ranks, long_timeout_group

    @classmethod
    def from_environment(cls, device: str = "auto") -> "Ranks":
        """The ranks that torchrun announces (RANK, WORLD_SIZE), connected: gloo on CPUs, nccl on GPUs.

        Args:
            device: what they compute on; "auto" is a GPU where torch sees one.
        """
        num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if num_ranks == 1:
            return cls()
        if not dist.is_initialized():
            on_gpus = device.startswith(("auto", "cuda")) and torch.cuda.is_available()
            if on_gpus:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("nccl" if on_gpus else "gloo")
        return cls(dist.get_rank(), num_ranks, dist.new_group(timeout=_LONGEST_WAIT, backend="gloo"))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def add(self, numbers: Tensor) -> Tensor:
        """The sum of every rank's numbers, the same on each."""
        if self.num_ranks == 1:
            return numbers
        summed = numbers.to(_device_type(), copy=True)
        dist.all_reduce(summed)
        return summed.to(numbers.device)

    def gather(self, rows: Tensor) -> tuple[Tensor, slice]:
        """The rows of every rank, one rank after the other, the same on each; and which of them are this rank's."""
        if self.num_ranks == 1:
            return rows, slice(0, len(rows))
        lengths = torch.zeros(self.num_ranks, dtype=torch.int64)
        lengths[self.rank] = len(rows)
        ends = self.add(lengths).cumsum(0).tolist()
        own = slice(ends[self.rank] - len(rows), ends[self.rank])
        everything = rows.new_zeros(ends[-1], *rows.shape[1:])
        everything[own] = rows
        return self.add(everything), own

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace every ``.grad`` by its sum over ranks, in one message; what no rank has stays None."""
        if self.num_ranks == 1:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        are_there = torch.tensor([float(p.grad is not None) for p in parameters]).to(gradients[0])
        together = torch.cat([*(gradient.flatten() for gradient in gradients), are_there])
        dist.all_reduce(together)
        *pieces, counts = together.split([*(gradient.numel() for gradient in gradients), len(parameters)])
        for parameter, piece, count in zip(parameters, pieces, counts.tolist(), strict=True):
            parameter.grad = piece.view_as(parameter) if count else None

    def shard(self, network: nn.Module) -> None:
        """Leave each rank with a shard of every parameter; layers are put together when they compute.

        Raises:
            UsageError: there is one rank only.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.check_several()
        mesh = init_device_mesh(_device_type(), (self.num_ranks,))
        for part in (*network.encoder.layers, network):  # pyrefly: ignore
            sharded = fully_shard(part, mesh=mesh)
            sharded.set_gradient_divide_factor(1.0)  # sums, not means
            sharded.set_force_sum_reduction_for_comms(True)

    def check_several(self) -> None:
        """Raise a UsageError where parameters cannot be sharded: there is one rank only."""
        if self.num_ranks == 1:
            raise UsageError("parameters are sharded over ranks, and there is one: start several with torchrun")

    def wait(self) -> None:
        """Until every rank is here."""
        if self.num_ranks > 1:
            dist.barrier(self._long_timeout_group)

    def shutdown(self) -> None:
        """Disconnect from the other ranks when all have finished."""
        if self.num_ranks > 1:
            self.wait()
            dist.destroy_process_group()

    def exit(self) -> None:
        """End this process, where it is one of several: torch's threads of communication now and then abort a process
        that ends by itself."""
        if self.num_ranks > 1:
            sys.stdout.flush()
            os._exit(0)


_LONGEST_WAIT = timedelta(days=1)
"""For another rank: the first one learns the vocabulary and writes the corpus as tokens while the others wait."""


def _device_type() -> str:
    """Where the tensors of messages lie."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def is_sharded(network: nn.Module) -> bool:
    """Whether its parameters are shards."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # imported by `Ranks.shard` alone: it takes a second
    return fsdp is not None and isinstance(network, fsdp.FSDPModule)


def gather_full_tensor(tensor: Tensor) -> Tensor:
    """A tensor put together from its shards, on the CPU; every rank must ask for it."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().cpu().contiguous()


def placed_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor on the device, and in the shards, of a parameter of its shape."""
    tensor = tensor.to(parameter.device)
    if hasattr(parameter, "placements"):  # a DTensor
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)  # pyrefly: ignore
    return tensor
