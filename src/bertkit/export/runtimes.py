"""Exported graphs in the runtimes that read them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from bertkit.errors import UsageError, required


class Runtime(Protocol):
    """A loaded graph."""

    name: str  # with its version

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, for (B, L) int64 inputs by name."""


class _OnnxRuntime:
    def __init__(self, path: Path) -> None:
        onnxruntime = _module("onnxruntime")
        self.name = f"onnxruntime {onnxruntime.__version__}"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))


class _OpenVino:
    def __init__(self, path: Path) -> None:
        openvino = _module("openvino")
        self.name = f"openvino {openvino.__version__.split('-')[0]}"
        # Without the hint, processors with bfloat16 instructions compute in bfloat16.
        self._model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = self._model(dict(inputs))
        return {output.any_name: np.array(results[output]) for output in self._model.outputs}


class Format(NamedTuple):
    """A format of graphs."""

    file: str
    load: Callable[[Path], Runtime]


FORMATS = {"onnx": Format("model.onnx", _OnnxRuntime), "openvino": Format("model.xml", _OpenVino)}


def check_format(name: str) -> None:
    """Check the name of a format, and that its packages are installed.

    Raises:
        UsageError: an unknown format.
        DependencyError: a package that is not installed.
    """
    if name not in FORMATS:
        raise UsageError(f"format={name!r}: expected one of {', '.join(FORMATS)}")
    for package in ("onnx", "onnxruntime", *(["openvino"] if name == "openvino" else [])):
        _module(package)


def quantize(path: Path) -> None:
    """Round the weights of an ONNX file to int8, by column, in place; activations are rounded as it runs.

    One bit less is used, as sums of processors without VNNI instructions would overflow 16 bits.
    """
    onnx = _module("onnx")
    _module("onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})  # written without spare nodes
    rounded = path.with_name(f"rounded-{path.name}")
    quantize_dynamic(model, rounded, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
    rounded.replace(path)


def convert(path: Path, out: Path) -> None:
    """Convert an ONNX file to OpenVINO's format, with the weights unchanged."""
    openvino = _module("openvino")
    openvino.save_model(openvino.convert_model(path), out, compress_to_fp16=False)


def _module(package: str) -> Any:
    return required(package, f"this export needs {package}, which is not installed", "export")
