"""The processes that train together, as torchrun starts them; a single process is a rank of one.

Every rank holds the whole network and computes its share of each batch; gradients are summed over ranks.
"""

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks:
    """This process's place among those that train together."""

    def __init__(self, rank: int = 0, num_ranks: int = 1) -> None:
        self.rank, self.num_ranks = rank, num_ranks

    @classmethod
    def from_environment(cls) -> "Ranks":
        """The ranks that torchrun announces (RANK, WORLD_SIZE), connected: gloo on CPUs, nccl on GPUs."""
        num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if num_ranks == 1:
            return cls()
        if not dist.is_initialized():
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return cls(dist.get_rank(), num_ranks)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def add(self, numbers: Tensor) -> Tensor:
        """The sum of every rank's numbers, the same on each."""
        if self.num_ranks == 1:
            return numbers
        device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
        summed = numbers.to(device, copy=True)
        dist.all_reduce(summed)
        return summed.to(numbers.device)

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace every ``.grad`` by its sum over ranks, in one message."""
        if self.num_ranks == 1:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together)
        pieces = together.split([gradient.numel() for gradient in gradients])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)

    def wait(self) -> None:
        """Until every rank is here."""
        if self.num_ranks > 1:
            dist.barrier()
