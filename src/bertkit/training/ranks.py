"""Distributed training: processes started by torchrun; a single process is the only rank.

Every rank computes its share of each batch, and gradients are summed over ranks. Each holds the whole network, or,
if that is too large for one, a shard of every parameter (`fully_shard`; Zhao et al. 2023, "PyTorch FSDP").
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from bertkit.errors import UsageError


class Ranks:
    """The rank of this process, and communication with the others."""

    def __init__(self, rank: int = 0, num_ranks: int = 1, long_timeout_group: Any = None) -> None:
        self.rank, self.num_ranks, self._long_timeout_group = rank, num_ranks, long_timeout_group

    @classmethod
    def from_environment(cls, device: str = "auto") -> "Ranks":
        """The ranks from torchrun's environment (RANK, WORLD_SIZE), connected: gloo on CPUs, nccl on GPUs.

        Args:
            device: device of the ranks; "auto" is a GPU if torch has one.
        """
        num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if num_ranks == 1:
            return cls()
        if not dist.is_initialized():
            on_gpus = device.startswith(("auto", "cuda")) and torch.cuda.is_available()
            if on_gpus:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            # After a rank has died, torchrun starts all again with the same store: the addresses in it are outdated.
            store, rank, num_ranks = next(rendezvous("env://"))
            store = dist.PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            dist.init_process_group("nccl" if on_gpus else "gloo", store=store, rank=rank, world_size=num_ranks)
        return cls(dist.get_rank(), num_ranks, dist.new_group(timeout=_LONGEST_WAIT, backend="gloo"))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def add(self, numbers: Tensor) -> Tensor:
        """Sum over ranks, the same on each."""
        if self.num_ranks == 1:
            return numbers
        summed = numbers.to(_device_type(), copy=True)
        dist.all_reduce(summed)
        return summed.to(numbers.device)

    def gather(self, rows: Tensor) -> tuple[Tensor, slice]:
        """Concatenated rows of all ranks, the same on each; and the slice of this rank."""
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
        """Replace every ``.grad`` by its sum over ranks, in one message; gradients that no rank has stay None."""
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
        """Shard every parameter over ranks; layers are gathered when they compute.

        Raises:
            UsageError: there is only one rank.
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
        """Raise a UsageError if there is only one rank."""
        if self.num_ranks == 1:
            raise UsageError("sharding requires several ranks: start them with torchrun")

    def check_single(self, work: str) -> None:
        """Raise a UsageError if there are several ranks, for work that is not shared, such as "a sweep runs"."""
        if self.num_ranks > 1:
            raise UsageError(f"{work} in one process: start it without torchrun")

    def check_batch_size(self, batch_size: int) -> None:
        """Raise a UsageError if a batch has fewer sequences than there are ranks."""
        if batch_size < self.num_ranks:
            raise UsageError(f"batch_size={batch_size} is below the {self.num_ranks} ranks")

    def check_same(self, digest: int, what: str) -> None:
        """Raise a UsageError on every rank if a digest, from 0 to below 2**48, is not the same on all."""
        digests = torch.zeros(self.num_ranks, dtype=torch.int64)
        digests[self.rank] = digest
        if len(set(self.add(digests).tolist())) > 1:
            raise UsageError(
                f"the {what} differ between the ranks: start every process with the same command and files"
            )

    def wait(self) -> None:
        """Wait for all ranks."""
        if self.num_ranks > 1:
            dist.barrier(self._long_timeout_group)

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """A block that the first rank runs before the others, which find the files that it wrote."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def shutdown(self) -> None:
        """Disconnect from the other ranks when all have finished."""
        if self.num_ranks > 1:
            self.wait()
            dist.destroy_process_group()

    def exit(self) -> None:
        """End this process if it is one of several: torch's communication threads sometimes abort a process that exits
        normally."""
        if self.num_ranks > 1:
            sys.stdout.flush()
            os._exit(0)


_LONGEST_WAIT = timedelta(days=1)
"""Timeout of waiting for another rank: the first one prepares vocabulary and corpus while the others wait."""


def _device_type() -> str:
    """Device type of message tensors."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def is_sharded(network: nn.Module) -> bool:
    """Whether the network's parameters are sharded."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # imported only by `Ranks.shard`, as it takes a second
    return fsdp is not None and isinstance(network, fsdp.FSDPModule)


def gather_full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor from its shards, on the CPU; every rank must call it."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().cpu().contiguous()


def placed_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor moved to the device of a parameter, and sharded like it."""
    tensor = tensor.to(parameter.device)
    if hasattr(parameter, "placements"):  # a DTensor
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)  # pyrefly: ignore
    return tensor
