"""A pytest plugin, `-p simulated_gpu`: torch with a CUDA device whose operators the CPU computes (tests/gpu).

As on a machine with a GPU, `device="auto"` is that device. `python tests/simulated_gpu.py SCRIPT ...` runs a script
there. Both have to begin before torch is imported, and need the environment of `simulated_gpu_library.simulation`.
"""

import ctypes
import importlib.util
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

assert "torch" not in sys.modules, "the simulated GPU has to be there before torch is imported"
_torch = importlib.util.find_spec("torch")
assert _torch is not None and _torch.origin is not None
for _name in ("libc10.so", "libtorch_cpu.so", os.environ["SIMULATED_GPU"]):
    ctypes.CDLL(str(Path(_torch.origin).parent / "lib" / _name), mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402

GPU: Any = torch.ops.simulated_gpu
BYTES = 8 << 30
SYNC_MODES = ("default", "warn", "error")


class Event:
    """All work of the device that began before the event was recorded."""

    place: int | None = None

    def record(self, stream: Any = None) -> None:
        self.place = GPU.position()

    def synchronize(self) -> None:
        assert self.place is not None, "the event was not recorded"
        GPU.wait_until(self.place)


class Stream:
    """The only stream."""

    def __init__(self, device: Any = None) -> None:
        self.device = torch.device("cuda", 0)

    def wait_stream(self, other: Any) -> None:
        pass

    def record_event(self) -> Event:
        event = Event()
        event.record()
        return event


class CUDAGraph:
    number: int

    def replay(self) -> None:
        GPU.replay(self.number)


@contextmanager
def graph(recorded: CUDAGraph, stream: Any = None, capture_error_mode: str = "global") -> Iterator[None]:
    recorded.number = GPU.begin_capture()
    try:
        yield
    finally:
        GPU.end_capture()


@contextmanager
def unchanged(*_: Any) -> Iterator[None]:
    yield


class Properties(SimpleNamespace):
    """A type that torch's compiler takes for a constant."""


def set_sync_debug_mode(mode: int | str) -> None:
    GPU.set_sync_mode(SYNC_MODES.index(mode) if isinstance(mode, str) else mode)


PROPERTIES = Properties(name="simulated GPU", major=9, minor=0, total_memory=BYTES, multi_processor_count=1)
REPLACED = {
    "_CudaDeviceProperties": Properties,
    "_lazy_init": lambda: None,
    "CUDAGraph": CUDAGraph,
    "Event": Event,
    "Stream": Stream,
    "current_device": lambda: 0,
    "current_stream": lambda device=None: Stream(),
    "default_generators": (torch.default_generator,),
    "device": unchanged,
    "device_count": lambda: 1,
    "get_device_capability": lambda device=None: (9, 0),
    "get_device_name": lambda device=None: PROPERTIES.name,
    "get_device_properties": lambda device=None: PROPERTIES,
    "graph": graph,
    "is_available": lambda: True,
    "is_bf16_supported": lambda: True,
    "is_initialized": lambda: True,
    "manual_seed": lambda seed: None,  # its random numbers are those of the CPU
    "manual_seed_all": lambda seed: None,
    "max_memory_allocated": lambda device=None: GPU.most_allocated(),
    "mem_get_info": lambda device=None: (BYTES, BYTES),
    "memory_allocated": lambda device=None: GPU.allocated(),
    "memory_reserved": lambda device=None: GPU.allocated(),
    "reset_peak_memory_stats": lambda device=None: None,
    "set_device": lambda device: None,
    "set_sync_debug_mode": set_sync_debug_mode,
    "stream": unchanged,
    "synchronize": lambda device=None: GPU.wait_until(GPU.position()),
}
for _name, _value in REPLACED.items():
    setattr(torch.cuda, _name, _value)
for _name in ("_cuda_getDevice", "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice", "_cuda_getCurrentRawStream"):
    setattr(torch._C, _name, lambda *_: 0)
torch._C._cuda_getDeviceCount = lambda: 1

import flash_attention_on_cpu  # noqa: E402, F401

_compile = torch.compile


def compile_without_code(model: Any = None, **options: Any) -> Any:
    """torch.compile, which has no code generator for this device: its graphs are run as they are."""
    return _compile(model, **{**options, "backend": "aot_eager"})


torch.compile = compile_without_code  # pyrefly: ignore

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
