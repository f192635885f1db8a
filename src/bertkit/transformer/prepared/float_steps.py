"""The steps of a prepared layer in float32, float64, bfloat16 or float16.

Shape letters: T total_tokens, D hidden_size, F intermediate_size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bertkit.batch import Batch
from bertkit.later import Tensor, nn, torch
from bertkit.transformer.embeddings import Embeddings
from bertkit.transformer.kernels.arrays import converted, copied
from bertkit.transformer.kernels.attention import bias_of_length
from bertkit.transformer.kernels.dispatch import Kernels, kernels_for
from bertkit.transformer.kernels.inference_steps import PlainEmbeddings
from bertkit.transformer.kernels.rounded_linear import RoundedLinear
from bertkit.transformer.layer import State
from bertkit.transformer.prepared.layer import PreparedLayer


class FloatSteps:
    """Steps in a floating-point precision.

    With norms before products, the residual stream has the dtype of the weights at every precision: it is added to and
    never normalized, so rounding errors would accumulate over layers.

    Args:
        dtype: of the products: numpy's for a stack with arrays, where uint16 holds bfloat16.
    """

    def __init__(self, kernels: Kernels, dtype: torch.dtype) -> None:
        self.kernels, self.dtype = kernels, dtype

    def linear(self, weight: Tensor, bias: Tensor | None) -> Any:
        """A product ``x W^T + b``."""
        return self.kernels.linear(*(part if part is None else converted(part, self.dtype) for part in (weight, bias)))

    def product(self, linear: Any, read: Tensor) -> Tensor:
        """The product of what products read."""
        return linear(read)

    def norm(self, norm: nn.LayerNorm, is_pre_norm: bool) -> Any:
        """A norm for `add_and_norm`."""
        return (self.kernels.add_then_norm if is_pre_norm else self.kernels.norm)(norm, self.dtype)

    def embeddings(self, module: Any, is_pre_norm: bool) -> Callable[[Batch], Tensor]:
        """A batch to its embeddings (T, D)."""
        dtype = module.word.weight.dtype if is_pre_norm else self.dtype  # of tensors
        embed = (self.kernels.embeddings if isinstance(module, Embeddings) else PlainEmbeddings)(module, dtype)
        if module.project is None:
            return embed
        project = self.linear(module.project.weight, module.project.bias)
        return lambda batch: project(embed(batch))

    def begin(self, embedded: Tensor, norm: Any) -> State:
        """The state before the first layer, with its norm unless that of the embeddings is its own."""
        if norm is None:
            return State(embedded, converted(embedded, self.dtype))
        return State(*norm(0 * embedded, embedded))

    def head_norms(self, *arguments: Any) -> Callable[[Tensor], Tensor]:
        """The norms of the heads of queries and keys, from the product before attention to its input; arguments as of
        `PlainHeadNorms`."""
        return self.kernels.head_norms(*arguments)

    def attend(self, layer: PreparedLayer, query_key_value: Tensor, batch: Batch, rotary: Any) -> Tensor:
        """Attention within the sequences of a batch: (T, (H + 2 G) K) to (T, H K)."""
        bias, sizes = bias_of_length(layer.bias, batch.max_seqlen), (layer.num_heads, layer.head_dim)
        return self.kernels.attention(query_key_value, batch, *sizes, rotary, layer.window, bias=bias)

    def inner(self, linear: Any, x: Tensor, activation: str, is_gated: bool) -> Tensor:
        """The inside of the feed-forward network: (T, D) to (T, F)."""
        return self.kernels.gate(linear(x), activation) if is_gated else linear(x, activation=activation)

    def add_and_norm(self, linear: Any, x: Tensor, state: State, norm: Any, is_pre_norm: bool) -> State:
        """The state after the product of ``x`` is added to the stream."""
        if is_pre_norm:
            return State(*norm(linear(x), state.stream))
        hidden = norm(linear(x, residual=state.stream))
        return State(hidden, hidden)

    def take(self, x: Tensor, rows: Tensor) -> Tensor:
        """Some rows of a context, or of what products read."""
        return x[rows]

    @staticmethod
    def floats_of(read: Tensor) -> Tensor:
        """(T, D) of what products read."""
        return read


class GenerationSteps(FloatSteps):
    """Steps of a stack that generates, with the residual stream in the dtype of the products."""

    def norm(self, norm: nn.LayerNorm, is_pre_norm: bool) -> Any:
        return self.kernels.norm(norm, self.dtype)

    def embeddings(self, module: Any, is_pre_norm: bool) -> Callable[[Batch], Tensor]:
        return PlainEmbeddings(module, self.dtype)

    def begin(self, embedded: Tensor, norm: Any) -> State:
        return State(embedded, embedded if norm is None else norm(copied(embedded)))

    def add_and_norm(self, linear: Any, x: Tensor, state: State, norm: Any, is_pre_norm: bool) -> State:
        if not is_pre_norm:
            return super().add_and_norm(linear, x, state, norm, is_pre_norm)
        stream = linear(x, residual=state.stream)
        return State(stream, norm(copied(stream)))


def generation_kernels_for(precision: str, device: torch.device) -> Kernels:
    """Kernels of `GenerationSteps`; with int8, everything but products is in float32.

    Raises:
        UsageError: int8 on a device that is not the CPU, or float16 on the CPU.
    """
    kernels = kernels_for(precision, device)
    return kernels_for("float32", device)._replace(linear=RoundedLinear) if precision == "int8" else kernels
