"""A layer of any Transformer prepared for inference, at any precision.

Shape letters: T total_tokens, D hidden_size.
"""

from typing import Any

from bertkit.device import device_of
from bertkit.executor import map_on_cores
from bertkit.later import Tensor
from bertkit.transformer.encoder import Encoder
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.arrays import are_equal, library_of
from bertkit.transformer.kernels.dispatch import kernels_for
from bertkit.transformer.layer import Layer, State
from bertkit.transformer.modules import ArrayModule

_PRODUCTS = "query_key_value", "output", "expand", "project"
"""Those of `Layer.linears`."""


class PreparedLayer:
    """One layer, its weights as the steps of a precision read them."""

    def __init__(self, layer: Layer, steps: Any, bias: Any) -> None:
        config, self.steps = layer.config, steps
        self.query_key_value, self.output, self.expand, self.project = (
            steps.linear(weight, bias) for weight, bias in layer.linears()
        )
        self.is_pre_norm, self.is_gated, self.is_cross = config.is_pre_norm, config.is_gated, config.attends_to_sources
        self.attention_norm = layer.attention_norm and steps.norm(layer.attention_norm, self.is_pre_norm)
        self.feed_forward_norm = steps.norm(layer.feed_forward_norm, self.is_pre_norm)
        self.num_heads, self.head_dim = config.num_attention_heads, config.head_dim
        attention = layer.attention
        norms = (attention.query_norm, attention.key_norm) if config.has_head_norms else None
        self.head_norms = norms and steps.head_norms(*norms, self.num_heads)
        self.activation, self.window = config.hidden_act, config.window
        self.positions, self.bias = config.positions, attention.for_layer(bias, _products)
        self.linears = [self.query_key_value, self.output, self.expand, self.project]  # of a step of generation
        if self.is_cross:
            self.cross_query, self.cross_key_value, self.cross_output = (
                steps.linear(weight, bias) for weight, bias in layer.cross_linears()
            )
            self.cross_norm = steps.norm(layer.cross_attention_norm, self.is_pre_norm)
            self.linears += [self.cross_query, self.cross_output]

    def share(self, other: "PreparedLayer", own: Layer, others: Layer) -> None:
        """Use the prepared products of another layer where the weights are equal.

        Args:
            own, others: the layers that they were prepared from.
        """
        for name, ours, theirs in zip(_PRODUCTS, own.linears(), others.linears(), strict=True):
            if all(are_equal(*same) for same in zip(ours, theirs, strict=True)):
                setattr(self, name, getattr(other, name))
        self.linears[: len(_PRODUCTS)] = [getattr(self, name) for name in _PRODUCTS]

    def __call__(
        self, number: int, state: State, next_norm: Any, attention: "Attention", rows: Tensor | None = None
    ) -> State:
        """The next state.

        Args:
            number: index of the layer.
            next_norm: with norms before products, that of the product after this layer; None: with norms after sums.
            rows: (C,) indices of the only rows to compute after attention; None: all.
        """
        steps = self.steps
        query_key_value = attention.inputs(number, self, state.read)
        if self.head_norms is not None:
            query_key_value = self.head_norms(query_key_value)
        context = attention.attend(number, self, query_key_value)
        if rows is not None:
            context, state = steps.take(context, rows), State(state.stream[rows], steps.take(state.read, rows))
        norms = self.norms(next_norm)
        state = steps.add_and_norm(self.output, context, state, norms[0], self.is_pre_norm)
        if self.is_cross:
            context = attention.attend_sources(number, steps.product(self.cross_query, state.read))
            state = steps.add_and_norm(self.cross_output, context, state, self.cross_norm, self.is_pre_norm)
        inner = steps.inner(self.expand, state.read, self.activation, self.is_gated)
        return steps.add_and_norm(self.project, inner, state, norms[1], self.is_pre_norm)

    def norms(self, next_norm: Any) -> tuple[Any, Any]:
        """The norms after adding the output of attention, and that of the feed-forward network."""
        return (
            (self.feed_forward_norm, next_norm) if self.is_pre_norm else (self.attention_norm, self.feed_forward_norm)
        )


def _products(rows: Any, *layers: Any) -> list[Any]:
    """Outputs of linear layers, in the dtype of their weights at every precision."""
    precision = "float64" if rows.dtype == library_of(rows).float64 else "float32"
    linear = kernels_for(precision, device_of(rows)).linear
    return [linear(layer.weight, layer.bias)(rows) for layer in layers]


class Attention:
    """Attention of the layers of a call."""

    def inputs(self, number: int, layer: PreparedLayer, read: Any) -> Any:
        """What `attend` reads, from what the layer reads: (T, D) to (T, 3 D); ``number`` is the index of the layer."""
        return layer.steps.product(layer.query_key_value, read)

    def attend(self, number: int, layer: PreparedLayer, query_key_value: Any) -> Any:
        """(T, (H + 2 G) K) queries of H heads, keys and values of G heads, to the context (T, H K); ``number`` is the
        index of the layer."""
        raise NotImplementedError

    def attend_sources(self, number: int, queries: Any) -> Any:
        """(T, D) queries of all heads to the context of the sources (T, D), in a layer with cross-attention."""
        raise NotImplementedError


class PreparedLayers:
    """The layers of an encoder or a decoder, in the order in which they are applied."""

    def __init__(self, stack: Any, steps: Any) -> None:
        modules, final_norm = stack.in_order(), stack.final_norm
        with inference_kernels():
            bias = stack.distance_bias(stack.config.max_position_embeddings) if isinstance(stack, Encoder) else None
        distinct = {id(module): module for module in modules}
        in_parallel = map_on_cores if isinstance(stack, ArrayModule) else map
        layers = in_parallel(lambda module: PreparedLayer(module, steps, bias), distinct.values())
        prepared = dict(zip(distinct, layers, strict=True))
        self.layers, self.steps = [prepared[id(module)] for module in modules], steps
        self.is_pre_norm = final_norm is not None
        self.norms = [layer.attention_norm if self.is_pre_norm else None for layer in self.layers]
        self.norms.append(None if final_norm is None else steps.norm(final_norm, True))

    def __call__(
        self,
        embedded: Any,
        attention: Attention,
        *,
        last_rows: Tensor | None = None,
        streams: list[Tensor] | None = None,
    ) -> State:
        """The state after the last layer, from embeddings.

        Args:
            last_rows: (C,) indices of the only rows to compute in the last layer after attention; None: all.
            streams: receives the residual stream before every layer and after the last one.
        """
        state = self.steps.begin(embedded, self.norms[0])
        for number, (layer, next_norm) in enumerate(zip(self.layers, self.norms[1:], strict=True)):
            if streams is not None:
                streams.append(state.stream)
            is_last = number == len(self.layers) - 1
            state = layer(number, state, next_norm, attention, last_rows if is_last else None)
        if streams is not None:
            streams.append(state.stream)
        return state
