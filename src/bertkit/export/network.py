"""Networks of BERT's layers as graphs over padded inputs.

Positions are counted over the attention mask, so that padding may be on either side. Shape letters: B batch, L length,
D hidden_size, H num_heads, K head_dim, E width of vectors, C labels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.architectures import ARCHITECTURES, Network
from bertkit.errors import UsageError
from bertkit.export.graph import Graph
from bertkit.heads import HEADS, DenseLayer, NormLayer, ProjectionLayer, VectorClassificationHead, poolings_of
from bertkit.heads.classification import ClassificationHead, DenseClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.heads.next_sentence import NextSentenceHead
from bertkit.heads.replaced_tokens import ReplacedTokensHead

_LOWEST = float(np.finfo(np.float32).min)

_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {  # names from ACTIVATIONS and OUTPUT_ACTIVATIONS
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


class EncoderGraph:
    """The graph of an encoder, and what heads and poolings read from it."""

    def __init__(self, network: Network) -> None:
        self.graph, self.network = Graph(), network
        self.encoder: Any = network.encoder
        self.ids = self.graph.input("input_ids", "batch", "length")
        self.mask = self.graph.input("attention_mask", "batch", "length")
        self.real = self.graph.op("Cast", self.mask, to=1)  # (B, L) float32, 1 = real token
        count = self.graph.op("CumSum", self.mask, self.graph.index(1))  # (B, L), 1 at the first real token
        self.rank = self.graph.op("Mul", count, self.mask)  # (B, L), 0 = padding
        self.states = self._encode()  # (B, L, D)

    def _encode(self) -> str:
        graph, encoder, config = self.graph, self.encoder, self.encoder.config
        hidden = self._embed()
        hidden_part = graph.op("Mul", graph.op("Sub", graph.constant(1.0), self.real), graph.constant(_LOWEST))
        bias = graph.op("Unsqueeze", hidden_part, graph.indices(1, 2))  # (B, 1, 1, L)
        of_distances = encoder.distance_bias(config.max_position_embeddings)
        if of_distances is not None:
            bias = graph.op("Add", bias, self._bias_by_distance(of_distances))
        layers = encoder.in_order()
        linears = {id(layer): layer.linears() for layer in layers}  # some layers may be the same
        for layer in layers:
            (joint, joint_bias), output, expand, project = linears[id(layer)]
            query_key_value = self._linear(hidden, joint, joint_bias)  # (B, L, 3 D)
            attended = self._linear(self._attend(query_key_value, bias), *output)
            hidden = self._norm(graph.op("Add", attended, hidden), layer.attention_norm)
            expanded = _ACTIVATIONS[config.hidden_act](graph, self._linear(hidden, *expand))
            hidden = self._norm(graph.op("Add", self._linear(expanded, *project), hidden), layer.feed_forward_norm)
        return hidden

    def _embed(self) -> str:
        graph, tables = self.graph, self.encoder.embeddings
        summed = graph.op("Gather", graph.weight(tables.word.weight), self.ids)
        if tables.token_type is not None and tables.token_type.num_embeddings > 1:
            types = graph.input("token_type_ids", "batch", "length")
            summed = graph.op("Add", summed, graph.op("Gather", graph.weight(tables.token_type.weight), types))
        elif tables.token_type is not None:
            summed = graph.op("Add", summed, graph.weight(tables.token_type.weight[0]))
        if tables.position is not None:
            positions = graph.op("Max", graph.op("Sub", self.rank, graph.index(1)), graph.index(0))
            rows = graph.weight(tables.position.weight[self.encoder.config.first_position :])
            summed = graph.op("Add", summed, graph.op("Gather", rows, positions))
        embedded = self._norm(summed, tables.norm)
        if tables.project is None:
            return embedded
        return self._linear(embedded, tables.project.weight, tables.project.bias)

    def _bias_by_distance(self, of_distances: Tensor) -> str:
        """(1, H, L, L) bias of attention scores, from (H, 2 P - 1) with distance d in column P - 1 + d."""
        graph, zero, one = self.graph, self.graph.index(0), self.graph.index(1)
        length = graph.op("Gather", graph.op("Shape", self.ids), one)
        columns = graph.op("Range", zero, length, one)
        distances = graph.op(
            "Sub", graph.op("Unsqueeze", columns, graph.indices(0)), graph.op("Unsqueeze", columns, graph.indices(1))
        )
        indices = graph.op("Add", distances, graph.index(of_distances.shape[1] // 2))  # (L, L): [query, key]
        # Padding may be further away than any two tokens of a text.
        within = graph.op("Clip", indices, zero, graph.index(of_distances.shape[1] - 1))
        gathered = graph.op("Gather", graph.weight(of_distances.contiguous()), within, axis=1)  # (H, L, L)
        return graph.op("Unsqueeze", gathered, graph.indices(0))

    def _attend(self, query_key_value: str, bias: str) -> str:
        """(B, L, 3 D) to (B, L, D)."""
        graph, config = self.graph, self.encoder.config
        heads, width = config.num_attention_heads, config.head_dim
        parts = graph.split(query_key_value, 3, axis=2)
        by_head = [graph.op("Reshape", part, graph.indices(0, 0, heads, width)) for part in parts]
        query, value = (graph.op("Transpose", by_head[index], perm=[0, 2, 1, 3]) for index in (0, 2))  # (B, H, L, K)
        key = graph.op("Transpose", by_head[1], perm=[0, 2, 3, 1])  # (B, H, K, L)
        scaled = graph.op("Mul", query, graph.constant(1 / math.sqrt(width)))
        scores = graph.op("Add", graph.op("MatMul", scaled, key), bias)
        context = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        return graph.op(
            "Reshape", graph.op("Transpose", context, perm=[0, 2, 1, 3]), graph.indices(0, 0, config.hidden_size)
        )

    def _linear(self, x: str, weight: Tensor, bias: Tensor | None) -> str:
        product = self.graph.op("MatMul", x, self.graph.weight(weight, transposed=True))
        return product if bias is None else self.graph.op("Add", product, self.graph.weight(bias))

    def _norm(self, x: str, norm: nn.LayerNorm) -> str:
        weights = [self.graph.weight(part) for part in (norm.weight, norm.bias)]
        return self.graph.op("LayerNormalization", x, *weights, axis=-1, epsilon=norm.eps)

    def _unit(self, vectors: str) -> str:
        """Vectors scaled to length 1."""
        graph = self.graph
        lengths = graph.op("ReduceL2", vectors, graph.indices(-1), keepdims=1)
        return graph.op("Div", vectors, graph.op("Max", lengths, graph.constant(1e-12)))

    def _token(self, index: str) -> str:
        """(B, D) hidden state of one token of each sequence, from its (B, 1) index."""
        indices = self.graph.op("Unsqueeze", index, self.graph.indices(2))  # (B, 1, 1)
        at_token = self.graph.op("GatherND", self.states, indices, batch_dims=1)
        return self.graph.op("Squeeze", at_token, self.graph.indices(1))

    def pooled(self, pooling: str) -> str:
        """(B, D): one vector for each sequence, by a name from POOLINGS."""
        graph = self.graph
        if pooling == "last":
            return self._token(graph.op("ArgMax", self.rank, axis=1, keepdims=1))
        if pooling in ("cls", "pooler"):
            first = self._token(graph.op("ArgMax", self.mask, axis=1, keepdims=1))
            if pooling == "cls":
                return first
            dense = self.encoder.pooler.dense  # type: ignore[union-attr]
            return graph.op("Tanh", self._linear(first, dense.weight, dense.bias))
        column = graph.op("Unsqueeze", self.real, graph.indices(2))  # (B, L, 1)
        if pooling == "max":
            is_real = graph.op("Cast", column, to=9)
            shown = graph.op("Where", is_real, self.states, graph.constant(_LOWEST))
            return graph.op("ReduceMax", shown, graph.indices(1), keepdims=0)
        if pooling == "weighted-mean":
            column = graph.op("Unsqueeze", graph.op("Cast", self.rank, to=1), graph.indices(2))
        summed = graph.op("ReduceSum", graph.op("Mul", self.states, column), graph.indices(1), keepdims=0)
        divisor = graph.op("ReduceSum", column, graph.indices(1), keepdims=0)
        return graph.op("Div", summed, graph.op("Sqrt", divisor) if pooling == "mean-sqrt-len" else divisor)

    def vectors(self, pooling: str) -> str:
        """(B, P D): the vectors of several poolings, concatenated."""
        parts = [self.pooled(name) for name in poolings_of(pooling)]
        return parts[0] if len(parts) == 1 else self.graph.op("Concat", *parts, axis=1)

    def sentence_vectors(self, layers: Sequence[ProjectionLayer]) -> str:
        """(B, E): the sentence vectors of the network, with the settings of its projection layers."""
        vectors = self.vectors(self.network.pooling)
        for layer, module in zip(layers, self.network.projection, strict=True):
            vectors = self._projected(vectors, layer, module)
        return self._unit(vectors) if self.network.normalize else vectors

    def _projected(self, vectors: str, layer: ProjectionLayer, module: Any) -> str:
        match layer:
            case DenseLayer():
                dense = _ACTIVATIONS[layer.activation](
                    self.graph, self._linear(vectors, module.linear.weight, module.linear.bias)
                )
                if not layer.residual:
                    return dense
                same_width = layer.in_features == layer.out_features
                kept = vectors if same_width else self._linear(vectors, module.residual.weight, None)
                return self.graph.op("Add", dense, kept)
            case NormLayer():
                return self._norm(vectors, module.norm)
        return self._unit(vectors)

    def logits(self, name: str) -> str:
        """The logits of a head: (B, C), or for a head over tokens (B, L, C); (B, L) for replaced tokens.

        Raises:
            UsageError: a head that cannot be exported.
        """
        head: Any = self.network.heads[name]
        build = _HEADS.get(type(head))
        if build is None or getattr(head, "num_vectors", 1) > 1:
            raise UsageError(
                f"the {name} head of this model ({type(head).__name__}) cannot be exported: supported are sentence "
                "encoders, masked LM, replaced tokens, next sentence, and classification of texts, tokens and answers"
            )
        taken = self.network.architecture.heads[name].input(self.network.config)
        if isinstance(head, VectorClassificationHead):
            return build(self, head, self._unit(self.vectors(head.pooling)))
        return build(self, head, self.states if taken == "tokens" else self.vectors(taken))

    def _classified(self, head: Any, x: str) -> str:
        return self._linear(x, head.classifier.weight, head.classifier.bias)

    def _dense_classified(self, head: Any, x: str) -> str:
        dense = self._linear(x, head.dense.weight, head.dense.bias)
        return self._classified(head, _ACTIVATIONS[head.activation](self.graph, dense))

    def _replaced_tokens(self, head: ReplacedTokensHead, x: str) -> str:
        return self.graph.op("Squeeze", self._dense_classified(head, x), self.graph.indices(-1))

    def _next_sentence(self, head: NextSentenceHead, x: str) -> str:
        return self._linear(x, head.dense.weight, head.dense.bias)

    def _masked_lm(self, head: MaskedLMHead, x: str) -> str:
        dense = _ACTIVATIONS[head.activation](self.graph, self._linear(x, head.dense.weight, head.dense.bias))
        words = self.graph.weight(self.encoder.embeddings.word.weight)  # the table of the input, (V, E)
        product = self.graph.op("MatMul", self._norm(dense, head.norm), self.graph.op("Transpose", words, perm=[1, 0]))
        return self.graph.op("Add", product, self.graph.weight(head.bias))


_HEADS: dict[type[nn.Module], Callable[[EncoderGraph, Any, str], str]] = {
    ClassificationHead: EncoderGraph._classified,
    VectorClassificationHead: EncoderGraph._classified,
    DenseClassificationHead: EncoderGraph._dense_classified,
    ReplacedTokensHead: EncoderGraph._replaced_tokens,
    NextSentenceHead: EncoderGraph._next_sentence,
    MaskedLMHead: EncoderGraph._masked_lm,
}

GRAPHS: dict[str, Callable[[Network], EncoderGraph]] = {"bert": EncoderGraph}
"""`Architecture.graph` -> the graph of its encoders."""


def graph_of(network: Network, head: str, layers: Sequence[ProjectionLayer]) -> Graph:
    """The graph of a network: ``logits`` of a head, ``start_logits`` and ``end_logits`` of question answering, or for
    "" ``sentence_embedding``.

    Args:
        layers: settings of the projection layers of the network.

    Raises:
        UsageError: an architecture or a head that cannot be exported.
    """
    record = network.architecture
    if record.graph is None or network.config.is_decoder:
        known = ", ".join(name for name, each in ARCHITECTURES.items() if each.graph is not None)
        kind = "left-to-right " if record.graph else ""
        raise UsageError(f"{kind}{record.model_type} models cannot be exported: supported are encoders of {known}")
    with torch.inference_mode():
        encoder = GRAPHS[record.graph](network)
        graph, tokens = encoder.graph, ("batch", "length")
        if not head:
            graph.output("sentence_embedding", encoder.sentence_vectors(layers), "batch", network.projection.width)
            return graph
        logits = encoder.logits(head)
        if head == "question_answering":
            for name, part in zip(("start", "end"), graph.split(logits, 2, axis=2), strict=True):
                graph.output(f"{name}_logits", graph.op("Squeeze", part, graph.indices(2)), *tokens)
        elif head == "replaced_tokens":
            graph.output("logits", logits, *tokens)
        else:
            graph.output("logits", logits, *tokens[: 1 if HEADS[head] else 2], _num_outputs(network, head))
    return graph


def _num_outputs(network: Network, name: str) -> int:
    """Number of logits of a sequence or a token."""
    head: Any = network.heads[name]
    return network.config.vocab_size if name == "masked_lm" else (
        2 if name == "next_sentence" else head.classifier.out_features
    )  # fmt: skip
