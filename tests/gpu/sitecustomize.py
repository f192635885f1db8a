"""Simulated CUDA devices for every Python process that finds this file on its path: torch gets them when imported.

As on a machine with a GPU, `device="auto"` is the first of them; SIMULATED_GPUS is their number, by default 1.
"""

import ctypes
import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any


class BeforeTorch(MetaPathFinder):
    """Loads the devices before torch, and replaces functions of torch after it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from simulated_gpu_library import library_or_reason, torch_folder

        library = os.environ.get("SIMULATED_GPU") or library_or_reason()
        for one in (torch_folder() / "lib" / "libc10.so", torch_folder() / "lib" / "libtorch_cpu.so", library):
            ctypes.CDLL(str(one), mode=ctypes.RTLD_GLOBAL)
        spec: Any = importlib.util.find_spec("torch")
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            import simulated_gpu  # noqa: F401

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, BeforeTorch())
