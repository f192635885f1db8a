"""Device and dtype selection, and copies between devices.

Takes: names from the caller: "auto", "cpu", "cuda"; "float32", "bfloat16", "float16", "int8".
Gives: torch's device and dtype; tensors on a device; products in full float32.
May import: later, errors.
"""

from __future__ import annotations

import platform
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.errors import UsageError
from bertkit.later import has_torch, torch

if TYPE_CHECKING:
    from torch import Tensor

PRECISIONS = {  # inference precision -> dtype of the weights
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "float32",
    "float16": "float32",
    "int8": "float32",
}
CPU_PRECISIONS = tuple(name for name in PRECISIONS if name != "float16")
"""Those that run on the CPU."""
GPU_PRECISIONS = tuple(name for name in PRECISIONS if name not in ("float64", "int8"))
"""Those that a GPU is used for: float64 is a reference."""

_SHORTER = ("bfloat16", "float16")
"""Precisions of the products that are less precise than the weights."""


def resolve_device(name: str) -> torch.device:
    """The torch device for a name; "auto" is a GPU if torch has one, else the CPU.

    Raises:
        UsageError: an unknown name, or a device this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if has_gpu() else "cpu")
    if not isinstance(name, str) or name.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device={name!r}: expected auto, cpu, cuda or mps")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device={name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def weights_dtype(precision: str) -> torch.dtype:
    """`weights_dtype_name` as torch's dtype."""
    return getattr(torch, weights_dtype_name(precision))


def weights_dtype_name(precision: str) -> str:
    """The dtype of weights for inference at a precision; prepared layouts are copies.

    Raises:
        UsageError: an unknown name.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision={precision!r}: expected one of {', '.join(PRECISIONS)}, auto")
    return PRECISIONS[precision]


def product_dtype(precision: str, weights: torch.dtype) -> torch.dtype:
    """The dtype of hidden states, and of products that are not in 8 bits, for a dtype of the weights."""
    return weights if weights == torch.float64 else getattr(torch, precision) if precision in _SHORTER else weights


class _Cpu:
    """The CPU where torch is not needed."""

    type = "cpu"

    def __str__(self) -> str:
        return self.type

    def __eq__(self, other: object) -> bool:
        return str(other) == self.type

    def __hash__(self) -> int:
        return hash(self.type)


def device_of(numbers: Any) -> torch.device:
    """The device of a tensor or an array."""
    return _Cpu() if isinstance(numbers, np.ndarray) else numbers.device  # type: ignore[return-value]


def is_cpu(name: str) -> bool:
    """Whether a name means the CPU of this machine, for which torch is not needed."""
    return name == "cpu" or (name == "auto" and not has_gpu())


def has_gpu() -> bool:
    """Whether "auto" is a GPU; torch is not asked where Linux has no file of one."""
    files = "/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"
    may_have_one = sys.platform != "linux" or any(Path(file).exists() for file in files)
    return may_have_one and has_torch() and torch.cuda.is_available()


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device. A copy to a CUDA device is queued from pinned memory, and nothing waits for it. On MPS,
    which lacks float64, it is in float32."""
    kind = torch.device(device).type
    if kind == "mps" and tensor.dtype == torch.float64:
        tensor = tensor.float()
    to_gpu = tensor.device.type == "cpu" and kind == "cuda"
    return pinned(tensor).to(device, non_blocking=True) if to_gpu else tensor.to(device)


def send_together(tensors: Sequence[Tensor], device: torch.device | str) -> list[Tensor]:
    """Integer tensors on a device, in one copy."""
    if all(tensor.device == torch.device(device) for tensor in tensors):
        return list(tensors)
    row = send(torch.cat([tensor.long().flatten() for tensor in tensors]), device)
    parts = zip(row.split([tensor.numel() for tensor in tensors]), tensors, strict=True)
    return [part.view(tensor.shape).to(tensor.dtype) for part, tensor in parts]


def receive(tensor: Any) -> Callable[[], Any]:
    """Begin to copy a tensor to the CPU; the returned function waits and returns it. An array is there already."""
    if isinstance(tensor, np.ndarray):
        return lambda: tensor
    if tensor.device.type != "cuda":
        return tensor.cpu
    copied, event = torch.empty_like(tensor, device="cpu", pin_memory=True), torch.cuda.Event()
    copied.copy_(tensor, non_blocking=True)
    event.record(torch.cuda.current_stream(tensor.device))

    def wait() -> Tensor:
        event.synchronize()
        return copied.clone()  # pinned memory is scarce, and reused

    return wait


def send_each(tensors: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Tensors on a device, in order. While the device works on one, the next is created and its copy is queued; at most
    two are in progress, so memory is bounded."""
    queued: deque[torch.Event] = deque()
    for tensor in tensors:
        yield send(tensor, device)
        if device.type == "cuda":
            queued.append(torch.cuda.current_stream(device).record_event())
            if len(queued) > 1:
                queued.popleft().synchronize()


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU in bytes, including what torch reserved and does not use; of other devices no limit."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return sys.maxsize


_precision_lock = threading.Lock()


@contextmanager
def full_float32() -> Iterator[None]:
    """Matrix products that the block starts are in full float32, even if torch is set to round their inputs to TF32 or
    bfloat16. The setting is one of the process, and restored after the block: keep the block short."""
    with _precision_lock:
        products: list[Any] = [getattr(torch.backends, name).matmul for name in ("cuda", "mkldnn")]
        changed = [(one, one.fp32_precision) for one in products if one.fp32_precision not in ("none", "ieee")]
        try:
            for one, _ in changed:
                one.fp32_precision = "ieee"
            yield
        finally:
            for one, precision in changed:
                one.fp32_precision = precision


def pinned(tensor: Tensor) -> Tensor:
    """A tensor of the CPU in memory that a CUDA device copies without waiting."""
    return tensor.pin_memory()


def device_name(device: torch.device) -> str:
    """The name of a processor or GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name() if device.type == "cpu" else device.type


def cpu_name() -> str:
    """Processor name, with the instruction set that torch uses."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}" if has_torch() else model
