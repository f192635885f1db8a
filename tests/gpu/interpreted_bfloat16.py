"""Products of bfloat16 in Triton's interpreter, which would multiply their bits as integers; in force when imported."""

from typing import Any

import numpy as np
import triton.language as tl  # pyrefly: ignore
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle  # pyrefly: ignore

_dot = InterpreterBuilder.create_dot


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _product(self: Any, a: Any, b: Any, *others: Any) -> Any:
    return _dot(self, _widened(a), _widened(b), *others)


InterpreterBuilder.create_dot = _product
