"""A layer of any Transformer prepared for inference, at any precision.

Shape letters: T total_tokens, D hidden_size.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from bertkit.transformer.gated.encoder import GatedEncoder
from bertkit.transformer.kernels import joined
from bertkit.transformer.layer import DecoderLayer, PreNormLayer
from bertkit.transformer.modernbert.encoder import ModernBertEncoder


class State(NamedTuple):
    """Hidden states between two steps. With norms after the sums, both are the same numbers."""

    stream: Tensor  # (T, D), what the output of the next product is added to
    read: Any  # (T, D), what the next product reads, the norm of the stream if norms come before: a Tensor, or
    # `HiddenStates`


class CrossSpec(NamedTuple):
    """Attention to the hidden states of sources."""

    query: tuple[Tensor, Tensor | None]
    key_value: tuple[Tensor, Tensor | None]
    output: tuple[Tensor, Tensor | None]
    norm: nn.LayerNorm


class LayerSpec(NamedTuple):
    """A layer as inference reads it."""

    linears: Sequence[tuple[Tensor, Tensor | None]]  # query, key and value; output; expand; project
    norms: tuple[nn.LayerNorm | None, nn.LayerNorm]  # of attention and of the feed-forward network
    num_heads: int
    activation: str
    is_pre_norm: bool = False
    is_gated: bool = False
    window: Any = None
    theta: float | None = None  # base of rotary positions
    bias: Any = None  # by distance
    cross: CrossSpec | None = None


def specs_of(stack: Any) -> list[LayerSpec]:
    """The layers of an encoder or decoder as they are applied."""
    layers = stack.in_order()
    if isinstance(stack, ModernBertEncoder):
        return [
            LayerSpec(
                [(weight, None) for weight in layer.weights()],
                (layer.attention_norm, layer.feed_forward_norm),
                layer.attention.num_heads,
                layer.feed_forward.activation,
                is_pre_norm=True,
                is_gated=True,
                window=layer.attention.window,
                theta=layer.attention.theta,
            )
            for layer in layers
        ]
    if isinstance(stack, GatedEncoder):
        return [
            LayerSpec(
                layer.linears(),
                (layer.attention_norm, layer.feed_forward_norm),
                layer.attention.num_heads,
                layer.feed_forward.activation,
                is_gated=True,
                theta=stack.config.rope_theta,
            )
            for layer in layers
        ]
    bias = stack.distance_bias(stack.config.max_position_embeddings) if hasattr(stack, "distance_bias") else None
    return [
        LayerSpec(
            layer.linears(),
            (layer.attention_norm, layer.feed_forward_norm),
            layer.attention.num_heads,
            stack.config.hidden_act,
            is_pre_norm=isinstance(layer, PreNormLayer),
            window=layer.attention.window,
            bias=layer.attention.for_layer(bias),
            cross=_cross_of(layer) if isinstance(layer, DecoderLayer) else None,
        )
        for layer in layers
    ]


def _cross_of(layer: DecoderLayer) -> CrossSpec:
    cross = layer.cross_attention
    query, output = ((linear.weight, linear.bias) for linear in (cross.query, cross.output))
    return CrossSpec(query, joined((cross.key, cross.value)), output, layer.cross_attention_norm)


class PreparedLayer:
    """One layer, its weights as the steps of a precision read them."""

    def __init__(self, spec: LayerSpec, steps: Any) -> None:
        self.steps = steps
        self.query_key_value, self.output, self.expand, self.project = (
            steps.linear(weight, bias) for weight, bias in spec.linears
        )
        self.attention_norm, self.feed_forward_norm = (
            None if norm is None else steps.norm(norm, spec.is_pre_norm) for norm in spec.norms
        )
        self.num_heads, self.activation, self.is_gated = spec.num_heads, spec.activation, spec.is_gated
        self.is_pre_norm, self.window, self.theta, self.bias = spec.is_pre_norm, spec.window, spec.theta, spec.bias
        self.linears = [self.query_key_value, self.output, self.expand, self.project]  # of a step of generation
        self.is_cross = spec.cross is not None
        if spec.cross is not None:
            self.cross_query, self.cross_key_value, self.cross_output = (
                steps.linear(weight, bias) for weight, bias in spec.cross[:3]
            )
            self.cross_norm = steps.norm(spec.cross.norm, spec.is_pre_norm)
            self.linears += [self.cross_query, self.cross_output]

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
        context = attention.attend(number, self, steps.product(self.query_key_value, state.read))
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


class Attention:
    """Attention of the layers of a call."""

    def attend(self, number: int, layer: PreparedLayer, query_key_value: Any) -> Any:
        """(T, 3 D) queries, keys and values of all heads to the context (T, D); ``number`` is the index of the
        layer."""
        raise NotImplementedError

    def attend_sources(self, number: int, queries: Any) -> Any:
        """(T, D) queries of all heads to the context of the sources (T, D), in a layer with cross-attention."""
        raise NotImplementedError


class PreparedLayers:
    """The layers of an encoder or a decoder, in the order in which they are applied."""

    def __init__(self, stack: Any, steps: Any) -> None:
        modules, specs = stack.in_order(), specs_of(stack)
        prepared = {id(module): PreparedLayer(spec, steps) for module, spec in zip(modules, specs, strict=True)}
        self.layers, self.steps = [prepared[id(module)] for module in modules], steps
        final_norm = getattr(stack, "final_norm", None)
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
