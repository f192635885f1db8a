"""What is compared: one file for each library, all with the same faces.

Each module here has

    SETTINGS     keyword arguments worth trying for ``load``, the likeliest first; the fastest on a sample is kept
    convert      (published folder, new folder): write the model in the library's own format; only where it has one
    load         (folder, precision, threads, **setting) -> embed;  embed(list[str]) -> (num_texts, D) float32 array

and imports its library inside these functions, so that a process holds only what it measures.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    module: str  # file of this folder
    package: str  # needed for it
    precision: str  # "float32", "bfloat16" or "int8"

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None

    def peer(self) -> ModuleType:
        return import_module(f"peers.{self.module}")


SYSTEMS = (
    System("bertkit fp32", "bertkit", "bertkit", "float32"),
    System("bertkit bf16", "bertkit", "bertkit", "bfloat16"),
    System("bertkit int8", "bertkit", "bertkit", "int8"),
    System("sentence-transformers fp32", "sentence_transformers", "sentence_transformers", "float32"),
    System("sentence-transformers bf16", "sentence_transformers", "sentence_transformers", "bfloat16"),
    System("CTranslate2 fp32", "ctranslate2", "ctranslate2", "float32"),
    System("CTranslate2 int8", "ctranslate2", "ctranslate2", "int8"),
    System("OpenVINO fp32", "openvino", "openvino", "float32"),
    System("OpenVINO bf16", "openvino", "openvino", "bfloat16"),
)
REFERENCE = "sentence-transformers fp32"
