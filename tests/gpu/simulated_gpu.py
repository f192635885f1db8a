"""torch's Python functions for CUDA devices, on the devices of device.cpp; imported by sitecustomize.py after torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import flash_attention_on_cpu  # noqa: F401
import torch
import torch.distributed as dist

GPU: Any = torch.ops.simulated_gpu
NUMBER = int(os.environ.get("SIMULATED_GPUS", "1"))
BYTES = 8 << 30
SYNC_MODES = ("default", "warn", "error")


class Event:
    """All work of the device that began before the event was recorded."""

    position: int | None = None

    def __init__(self, **options: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        self.position = GPU.position()

    def synchronize(self) -> None:
        assert self.position is not None, "the event was not recorded"
        GPU.wait_until(self.position)


class Stream:
    """The only stream of a device: what it waits for has been computed."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device = torch.device("cuda", number_of(device))

    def wait_stream(self, other: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event


class CUDAGraph:
    number: int

    def replay(self) -> None:
        GPU.replay(self.number)

    def pool(self) -> tuple[int, int]:
        return 0, 0


@contextmanager
def graph(
    recorded: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
) -> Iterator[None]:
    recorded.number = GPU.begin_capture()
    try:
        yield
    finally:
        GPU.end_capture()


class Device:
    """The device of a block."""

    def __init__(self, device: Any) -> None:
        self.number = number_of(device)

    def __enter__(self) -> None:
        self.before = GPU.current()
        GPU.set_current(self.number)

    def __exit__(self, *_: Any) -> None:
        GPU.set_current(self.before)


def number_of(device: Any) -> int:
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return GPU.current() if index is None else index


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
    "current_device": GPU.current,
    "current_stream": Stream,
    "default_generators": (torch.default_generator,) * NUMBER,
    "device": Device,
    "device_count": lambda: NUMBER,
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
    "set_device": lambda device: GPU.set_current(number_of(device)),
    "set_sync_debug_mode": set_sync_debug_mode,
    "stream": lambda stream: nullcontext(),
    "synchronize": lambda device=None: GPU.wait_until(GPU.position()),
}
for _name, _value in REPLACED.items():
    setattr(torch.cuda, _name, _value)
torch.cuda.nccl.version = lambda: (0, 0, 0)  # pyrefly: ignore
torch._C._cuda_getDevice = GPU.current
torch._C._cuda_getDeviceCount = lambda: NUMBER
torch._C._cuda_getCurrentRawStream = lambda device: 0

_compile, _connect, _resize = torch.compile, dist.init_process_group, torch.UntypedStorage.resize_


def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    if storage.device.type != "cuda":
        return _resize(storage, size)
    GPU.resize_storage(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage), size)
    return storage


def compile_without_code(model: Any = None, **options: Any) -> Any:
    """torch.compile, which has no code generator for this device: its graphs are run as they are."""
    return _compile(model, **{**options, "backend": "aot_eager"})


def connect(backend: str | None = None, **options: Any) -> None:
    """init_process_group, in which gloo sends the messages of nccl."""
    if backend == "nccl":
        GPU.send_by_cpu()
        dist.get_backend = lambda group=None: "nccl"  # pyrefly: ignore
        backend = "cpu:gloo,cuda:gloo"
    _connect(backend, **options)


torch.compile, dist.init_process_group = compile_without_code, connect  # pyrefly: ignore
torch.UntypedStorage.resize_ = resize  # pyrefly: ignore
