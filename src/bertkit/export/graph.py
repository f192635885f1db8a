"""ONNX graphs written node by node: a thin layer over onnx.helper.

Values are names of tensors. Shape letters: B batch, L length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from bertkit.errors import DependencyError

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 20
"""Version of the ONNX operators: the first with Gelu."""

_LARGEST_FILE = 2**31 - 2**24
"""Bytes of weights from which they are written to a second file: a protobuf message has less than 2 GiB."""


@dataclass
class Graph:
    """A graph under construction."""

    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    inputs: dict[str, list[int | str]] = field(default_factory=dict)  # name -> shape; a str is a dynamic dimension
    outputs: dict[str, list[int | str]] = field(default_factory=dict)
    _weights: dict[Any, tuple[str, Tensor]] = field(default_factory=dict)  # by memory, which the tensors keep in use
    _constants: dict[Any, str] = field(default_factory=dict)  # by value
    _num_bytes: int = 0

    def input(self, name: str, *shape: int | str) -> str:
        """Declare an int64 input."""
        self.inputs[name] = list(shape)
        return name

    def output(self, name: str, value: str, *shape: int | str) -> None:
        """Declare a float32 output with this name."""
        self.nodes.append(_onnx().helper.make_node("Identity", [value], [name]))
        self.outputs[name] = list(shape)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        return self._node(kind, inputs, 1, attributes)[0]

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Split a tensor into parts of some sizes."""
        return self._node("Split", (x, self.indices(*sizes)), len(sizes), {"axis": axis})

    def linear(self, x: str, weight: Tensor, bias: Tensor | None) -> str:
        """``x W^T + b``."""
        product = self.op("MatMul", x, self.weight(weight, transposed=True))
        return product if bias is None else self.op("Add", product, self.weight(bias))

    def norm(self, x: str, norm: nn.LayerNorm | nn.RMSNorm | None) -> str:
        """Normalize rows; None: return them as they are."""
        if norm is None:
            return x
        if isinstance(norm, nn.LayerNorm):
            weights = [self.weight(part) for part in (norm.weight, norm.bias) if part is not None]
            return self.op("LayerNormalization", x, *weights, axis=-1, epsilon=norm.eps)
        squares = self.op("ReduceMean", self.op("Pow", x, self.constant(2.0)), self.indices(-1), keepdims=1)
        root = self.op("Sqrt", self.op("Add", squares, self.constant(norm.eps)))
        return self.op("Mul", self.op("Div", x, root), self.weight(norm.weight))

    def activate(self, x: str, name: str) -> str:
        """Apply an activation: a key of ACTIVATIONS or OUTPUT_ACTIVATIONS."""
        return _ACTIVATIONS[name](self, x)

    def _node(self, kind: str, inputs: Sequence[str], num_outputs: int, attributes: dict[str, Any]) -> list[str]:
        names = [f"{kind.lower()}_{len(self.nodes)}_{number}" for number in range(num_outputs)]
        self.nodes.append(_onnx().helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def weight(self, tensor: Tensor, *, transposed: bool = False) -> str:
        """Add a float32 weight, once for all uses of the same memory."""
        key = tensor.data_ptr(), tuple(tensor.shape), transposed
        if key not in self._weights:
            array = tensor.detach().float().cpu().numpy()
            name = self._store(np.ascontiguousarray(array.T if transposed else array), "weight")
            self._weights[key] = name, tensor
        return self._weights[key][0]

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Add a small constant, once for each value."""
        array = np.asarray(value, dtype)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self._store(array, "constant")
        return self._constants[key]

    def indices(self, *values: int) -> str:
        """A vector of int64, such as axes or a shape."""
        return self.constant(values, np.int64)

    def index(self, value: int) -> str:
        """An int64 scalar."""
        return self.constant(value, np.int64)

    def _store(self, array: np.ndarray, kind: str) -> str:
        name = f"{kind}_{len(self.initializers)}"
        self.initializers.append(_onnx().numpy_helper.from_array(array, name))
        self._num_bytes += array.nbytes
        return name

    def save(self, path: Path) -> None:
        """Check the graph and write it; weights of more than 2 GiB go to a second file next to it."""
        onnx = _onnx()
        inputs, outputs = (
            [onnx.helper.make_tensor_value_info(name, kind, shape) for name, shape in declared.items()]
            for kind, declared in ((onnx.TensorProto.INT64, self.inputs), (onnx.TensorProto.FLOAT, self.outputs))
        )
        graph = onnx.helper.make_graph(self.nodes, "bertkit", inputs, outputs, self.initializers)
        model: ModelProto = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid("", OPSET)],
            ir_version=onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", OPSET)]),
            producer_name="bertkit",
        )
        if self._num_bytes > _LARGEST_FILE:
            onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data")
        else:
            onnx.save(model, path)
        onnx.checker.check_model(str(path), full_check=True)


_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "gelu": lambda graph, x: graph.op("Gelu", x),
    "gelu_new": lambda graph, x: graph.op("Gelu", x, approximate="tanh"),
    "relu": lambda graph, x: graph.op("Relu", x),
    "silu": lambda graph, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
    "tanh": lambda graph, x: graph.op("Tanh", x),
    "Identity": lambda graph, x: x,
    "Sigmoid": lambda graph, x: graph.op("Sigmoid", x),
    "Tanh": lambda graph, x: graph.op("Tanh", x),
    "ReLU": lambda graph, x: graph.op("Relu", x),
    "GELU": lambda graph, x: graph.op("Gelu", x),
    "SiLU": lambda graph, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
    "Softplus": lambda graph, x: graph.op("Softplus", x),
    "LeakyReLU": lambda graph, x: graph.op("LeakyRelu", x, alpha=0.01),
    "ELU": lambda graph, x: graph.op("Elu", x, alpha=1.0),
}


def _onnx() -> Any:
    """The onnx package.

    Raises:
        DependencyError: it is not installed.
    """
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise DependencyError("export needs onnx and onnxruntime: pip install 'bertkit[export]'") from None
    return onnx
