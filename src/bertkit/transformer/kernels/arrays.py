"""torch's tensors as the compiled kernels take them."""

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.transformer.kernels.rows import Norm, padded


def array(tensor: Tensor) -> np.ndarray:
    """The same memory as an array, bfloat16 as uint16."""
    tensor = tensor.detach()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def norm_arrays(norm: nn.LayerNorm) -> Norm:
    """A layer normalization's weights as they are now."""
    weight, bias = (padded(array(part)) for part in (norm.weight, norm.bias))
    return Norm(weight, bias, np.float32(norm.eps))
