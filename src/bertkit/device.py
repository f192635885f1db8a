"""Device and dtype selection.

Takes: names from the caller: "auto", "cpu", "cuda"; "float32", "bfloat16", "int8".
Gives: torch's device and dtype.
May import: errors.
"""

import platform
from pathlib import Path

import torch

from bertkit.errors import UsageError

PRECISIONS = {  # inference precision -> dtype of the weights
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.float32,
    "int8": torch.float32,
}


def resolve_device(name: str) -> torch.device:
    """The torch device for a name; "auto" is a GPU if torch has one, else the CPU.

    Raises:
        UsageError: an unknown name, or a device this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device={name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device={name!r}: expected auto, cpu, cuda or mps")
    return device


def weights_dtype(precision: str) -> torch.dtype:
    """The dtype of weights for inference at a precision; prepared layouts are copies.

    Raises:
        UsageError: an unknown name.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision={precision!r}: expected one of {', '.join(PRECISIONS)}, auto")
    return PRECISIONS[precision]


def cpu_name() -> str:
    """Processor name, with the instruction set that torch uses."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}"
