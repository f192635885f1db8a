"""The encoder prepared for inference at a precision: with packed weights and fused steps.

Shape letters: T total_tokens, D hidden_size.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook

from bertkit.batch import Batch
from bertkit.device import product_dtype
from bertkit.transformer.embeddings import Embeddings
from bertkit.transformer.encoder import BertEncoder
from bertkit.transformer.few_rows.prepared import FewRows, is_few
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.attention import bias_of_length
from bertkit.transformer.kernels.dispatch import Kernels, kernels_for
from bertkit.transformer.kernels.inference_steps import PlainEmbeddings
from bertkit.transformer.kernels.row_invariance import row_count
from bertkit.transformer.layer import EncoderLayer
from bertkit.transformer.prepared_int8 import HiddenStates, Int8Embeddings, Int8Layer, floats_of


class PreparedLayer:
    """`EncoderLayer` with query, key and value as one product, and fused activation and residuals."""

    def __init__(
        self, layer: EncoderLayer, activation: str, kernels: Kernels, dtype: torch.dtype, bias: Any = None
    ) -> None:
        self.query_key_value, self.output, self.expand, self.project = (
            kernels.linear(weight.to(dtype), bias.to(dtype)) for weight, bias in layer.linears()
        )
        self.attention_norm = kernels.norm(layer.attention_norm, dtype)
        self.feed_forward_norm = kernels.norm(layer.feed_forward_norm, dtype)
        self.attention, self.num_heads, self.activation = kernels.attention, layer.attention.num_heads, activation
        self.window = layer.attention.window
        self.bias = layer.attention.for_layer(bias)

    def __call__(self, hidden_states: Tensor, batch: Batch, chosen: Tensor | None = None) -> Tensor:
        """(T, D) to (T, D), or with the positions of C ``chosen`` tokens to (C, D)."""
        bias = bias_of_length(self.bias, batch.max_seqlen)
        query_key_value = self.query_key_value(hidden_states)
        context = self.attention(query_key_value, batch, self.num_heads, window=self.window, bias=bias)
        if chosen is not None:
            context, hidden_states = context[chosen], hidden_states[chosen]
        attended = self.attention_norm(self.output(context, residual=hidden_states))
        expanded = self.expand(attended, activation=self.activation)
        return self.feed_forward_norm(self.project(expanded, residual=attended))


class Projected:
    """Embeddings and the linear layer after them."""

    def __init__(self, embeddings: Callable[[Batch], Tensor], linear: Callable[[Tensor], Tensor]) -> None:
        self.embeddings, self.linear = embeddings, linear

    def __call__(self, batch: Batch) -> Tensor:
        """Returns (T, D)."""
        return self.linear(self.embeddings(batch))


class PreparedBertEncoder:
    """`BertEncoder` prepared for inference.

    Contains copies of the current weights; `fits` checks whether the encoder's weights have changed.

    Args:
        precision: "float32" or "float64", the dtype of the encoder's weights; "bfloat16" or "float16": for products
            and hidden states; "int8": for products.
        kernels: None: the fastest on this machine.

    Raises:
        UsageError: int8 on a device that is not the CPU, or float16 on the CPU.
    """

    def __init__(self, encoder: BertEncoder, precision: str = "float32", kernels: Kernels | None = None) -> None:
        weight = encoder.embeddings.word.weight
        if weight.dtype == torch.float64:
            precision = "float64"
        kernels = kernels or kernels_for(precision, weight.device)
        activation, layers = encoder.config.hidden_act, encoder.in_order()
        distinct = {id(layer): layer for layer in layers}
        project = encoder.embeddings.project
        self.encoder, self._weights = encoder, WeightsAsTheyAre(encoder)
        with torch.inference_mode():
            bias = encoder.distance_bias(encoder.config.max_position_embeddings)
            if precision == "int8":
                self.embeddings = Int8Embeddings(encoder.embeddings)
                prepared: dict[int, Any] = {
                    key: Int8Layer(layer, activation, kernels.linear, bias) for key, layer in distinct.items()
                }
            else:
                dtype = product_dtype(precision, weight.dtype)
                self.embeddings = (
                    kernels.embeddings(encoder.embeddings, dtype)
                    if isinstance(encoder.embeddings, Embeddings)
                    else PlainEmbeddings(encoder.embeddings, dtype)
                )
                if project is not None:
                    linear = kernels.linear(project.weight.to(dtype), project.bias.to(dtype))
                    self.embeddings = Projected(self.embeddings, linear)
                prepared = {
                    key: PreparedLayer(layer, activation, kernels, dtype, bias) for key, layer in distinct.items()
                }
            self.layers = [prepared[id(layer)] for layer in layers]

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return encoder is self.encoder and self._weights.are_unchanged()

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """As `BertEncoder.forward` in evaluation; hidden states have the dtype of the encoder's weights.

        On the CPU hidden states are bit-identical regardless of the other sequences of the batch.
        """
        num_tokens, filled = len(batch.input_ids), in_row_counts(batch)
        hidden: Any = self.embeddings(filled)  # HiddenStates or Tensor, the input of the layers
        hidden_states = [self._plain(hidden, num_tokens)] if with_hidden_states else []
        chosen = None
        if not with_hidden_states and is_few(filled) and self._few_rows is not None:
            hidden = self._few_rows(hidden, filled)
        elif self.layers:
            *inner, last_layer = self.layers
            for layer in inner:
                hidden = layer(hidden, filled)
                if with_hidden_states:
                    hidden_states.append(self._plain(hidden, num_tokens))
            chosen = batch.first_tokens if first_only and not with_hidden_states else None
            hidden = last_layer(hidden, filled, chosen)
        last, pooler = self._plain(hidden, num_tokens), self.encoder.pooler
        if with_hidden_states and self.layers:
            hidden_states.append(last)
        if chosen is not None:
            last = last.new_zeros(num_tokens, last.shape[1]).index_copy_(0, chosen, last)
        with inference_kernels():
            pooled = None if pooler is None or not with_pooled else pooler(last[batch.first_tokens])
        return EncoderOutput(
            last_hidden_state=last, pooled=pooled, hidden_states=hidden_states if with_hidden_states else None
        )

    @cached_property
    def _few_rows(self) -> FewRows | None:
        return FewRows.of_plain(self.layers)

    def _plain(self, hidden: Tensor | HiddenStates, num_tokens: int) -> Tensor:
        return floats_of(hidden)[:num_tokens].to(self.encoder.embeddings.word.weight.dtype)


def in_row_counts(batch: Batch) -> Batch:
    """A batch padded on the CPU to one of the row counts of products."""
    return batch.filled(row_count(len(batch.input_ids))) if batch.input_ids.device.type == "cpu" else batch


class WeightsAsTheyAre:
    """Record of an encoder's weights, to detect later changes: modules, addresses and version counters of parameters.

    Written for speed, as it is compared before every inference. A change inside ``parameter.data``, such as
    ``parameter.data.mul_(2)``, is not seen, as torch does not count it: change weights in ``torch.no_grad()`` instead.
    """

    def __init__(self, encoder: nn.Module) -> None:
        modules = list(encoder.modules())
        # torch does not count the updates of parameters made in inference mode: such encoders are prepared again every
        # time.
        self._is_counted = not any(parameter.is_inference() for parameter in encoder.parameters())
        self._children = [(own, tuple(own.values())) for module in modules if (own := module._modules)]
        self._parameters = [
            (module._parameters, name, parameter, *_address_and_version(parameter))
            for module in modules for name, parameter in module._parameters.items() if self._is_counted
        ]  # fmt: skip

    def are_unchanged(self) -> bool:
        return (
            self._is_counted
            and all(tuple(own.values()) == children for own, children in self._children)
            and all(
                own.get(name) is parameter
                and (parameter is None or (parameter.data_ptr() == address and parameter._version == version))
                for own, name, parameter, address, version in self._parameters
            )
        )


def _address_and_version(parameter: Tensor | None) -> tuple[int, int]:
    return (0, 0) if parameter is None else (parameter.data_ptr(), parameter._version)


def _count_updates(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Count an optimizer's step in the versions of its parameters: fused optimizers write past torch's own count."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    increment_version([parameter for parameter in parameters if parameter.grad is not None])


register_optimizer_step_post_hook(_count_updates)
