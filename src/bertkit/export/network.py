"""Networks as graphs over padded inputs.

Positions are counted over the attention mask, so that padding may be on either side. Shape letters: B batch, L length,
D hidden_size, E width of vectors, C labels.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from bertkit.architectures import ARCHITECTURES, Network
from bertkit.errors import UsageError
from bertkit.export.graph import Graph
from bertkit.export.layers import LOWEST, EncoderLayers
from bertkit.heads import (
    HEADS,
    DenseLayer,
    LateClassificationHead,
    NormLayer,
    ProjectionLayer,
    VectorClassificationHead,
    poolings_of,
)
from bertkit.heads.classification import ClassificationHead, DenseClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead, VocabularyHead
from bertkit.heads.modernbert import ModernBertClassificationHead, ModernBertMaskedLMHead
from bertkit.heads.next_sentence import NextSentenceHead
from bertkit.heads.replaced_tokens import ReplacedTokensHead
from bertkit.transformer import DisentangledPositions, EncoderConfig
from bertkit.transformer.modules import class_of


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
        before = self.graph.op("Sub", self.rank, self.graph.index(1))
        self.position_ids = self.graph.op("Max", before, self.graph.index(0))  # (B, L), 0 also for padding
        layers = EncoderLayers(self.graph, self.encoder, self.real, self.position_ids)
        self.states = layers(self._embed())  # (B, L, D)

    def _embed(self) -> str:
        graph, tables = self.graph, self.encoder.embeddings
        summed = graph.op("Gather", graph.weight(tables.word.weight), self.ids)
        if tables.token_type is not None and tables.token_type.num_embeddings > 1:
            types = graph.input("token_type_ids", "batch", "length")
            summed = graph.op("Add", summed, graph.op("Gather", graph.weight(tables.token_type.weight), types))
        elif tables.token_type is not None:
            summed = graph.op("Add", summed, graph.weight(tables.token_type.weight[0]))
        if tables.position is not None:
            rows = graph.weight(tables.position.weight[self.encoder.config.first_position :])
            summed = graph.op("Add", summed, graph.op("Gather", rows, self.position_ids))
        embedded = graph.norm(summed, tables.norm)
        if tables.project is None:
            return embedded
        return graph.linear(embedded, tables.project.weight, tables.project.bias)

    def _unit(self, vectors: str) -> str:
        """Vectors scaled to length 1."""
        graph = self.graph
        lengths = graph.op("ReduceL2", vectors, graph.indices(-1), keepdims=1)
        return graph.op("Div", vectors, graph.op("Max", lengths, graph.constant(1e-12)))

    def _real_column(self) -> str:
        """(B, L, 1), 1 = real token."""
        return self.graph.op("Unsqueeze", self.real, self.graph.indices(2))

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
            return graph.op("Tanh", graph.linear(first, dense.weight, dense.bias))
        column = self._real_column()
        if pooling == "max":
            is_real = graph.op("Cast", column, to=9)
            shown = graph.op("Where", is_real, self.states, graph.constant(LOWEST))
            return graph.op("ReduceMax", shown, graph.indices(1), keepdims=0)
        if pooling == "weighted-mean":
            column = graph.op("Unsqueeze", graph.op("Cast", self.rank, to=1), graph.indices(2))
        return self._mean(self.states, column, of_root=pooling == "mean-sqrt-len")

    def _mean(self, states: str, weights: str, *, of_root: bool = False) -> str:
        """(B, D): mean of states with (B, L, 1) weights, or their sum divided by the root of that of the weights."""
        graph = self.graph
        summed = graph.op("ReduceSum", graph.op("Mul", states, weights), graph.indices(1), keepdims=0)
        divisor = graph.op("ReduceSum", weights, graph.indices(1), keepdims=0)
        return graph.op("Div", summed, graph.op("Sqrt", divisor) if of_root else divisor)

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
                linear = self.graph.linear(vectors, module.linear.weight, module.linear.bias)
                dense = self.graph.activate(linear, layer.activation)
                if not layer.residual:
                    return dense
                same_width = layer.in_features == layer.out_features
                kept = vectors if same_width else self.graph.linear(vectors, module.residual.weight, None)
                return self.graph.op("Add", dense, kept)
            case NormLayer():
                return self.graph.norm(vectors, module.norm)
        return self._unit(vectors)

    def logits(self, name: str) -> str:
        """The logits of a head: (B, C), or for a head over tokens (B, L, C); (B, L) for replaced tokens.

        Raises:
            UsageError: a head that cannot be exported.
        """
        head: Any = self.network.heads[name]
        build = _HEADS.get(class_of(head))
        if build is None or getattr(head, "num_vectors", 1) > 1:
            raise UsageError(
                f"the {name} head of this model ({class_of(head).__name__}) cannot be exported: supported are sentence "
                "encoders, masked LM, replaced tokens, next sentence, and classification of texts, tokens and answers"
            )
        taken = self.network.architecture.heads[name].input(self.network.config)
        if isinstance(head, VectorClassificationHead):
            return build(self, head, self._unit(self.vectors(head.pooling)))
        return build(self, head, self.states if taken == "tokens" else self.vectors(taken))

    def _classified(self, head: Any, x: str) -> str:
        return self.graph.linear(x, head.classifier.weight, head.classifier.bias)

    def _dense(self, head: Any, x: str) -> str:
        return self.graph.activate(self.graph.linear(x, head.dense.weight, head.dense.bias), head.activation)

    def _dense_classified(self, head: Any, x: str) -> str:
        return self._classified(head, self._dense(head, x))

    def _normed_classified(self, head: ModernBertClassificationHead, x: str) -> str:
        return self._classified(head, self.graph.norm(self._dense(head, x), head.norm))

    def _late_classified(self, head: LateClassificationHead, x: str) -> str:
        return self._classified(head, self._mean(self._dense(head, self.states), self._real_column()))

    def _replaced_tokens(self, head: ReplacedTokensHead, x: str) -> str:
        return self.graph.op("Squeeze", self._dense_classified(head, x), self.graph.indices(-1))

    def _next_sentence(self, head: NextSentenceHead, x: str) -> str:
        return self.graph.linear(x, head.dense.weight, head.dense.bias)

    def _masked_lm(self, head: MaskedLMHead | ModernBertMaskedLMHead, x: str) -> str:
        words = self.graph.weight(self.encoder.embeddings.word.weight)  # the table of the input, (V, E)
        transformed = self.graph.norm(self._dense(head, x), head.norm)
        product = self.graph.op("MatMul", transformed, self.graph.op("Transpose", words, perm=[1, 0]))
        return self.graph.op("Add", product, self.graph.weight(head.bias))

    def _vocabulary(self, head: VocabularyHead, x: str) -> str:
        weight = self.encoder.embeddings.word.weight if head.weight is None else head.weight
        return self.graph.linear(x, weight, head.bias)


_HEADS: dict[type[nn.Module], Callable[[EncoderGraph, Any, str], str]] = {
    ClassificationHead: EncoderGraph._classified,
    VectorClassificationHead: EncoderGraph._classified,
    DenseClassificationHead: EncoderGraph._dense_classified,
    LateClassificationHead: EncoderGraph._late_classified,
    ModernBertClassificationHead: EncoderGraph._normed_classified,
    ReplacedTokensHead: EncoderGraph._replaced_tokens,
    NextSentenceHead: EncoderGraph._next_sentence,
    MaskedLMHead: EncoderGraph._masked_lm,
    ModernBertMaskedLMHead: EncoderGraph._masked_lm,
    VocabularyHead: EncoderGraph._vocabulary,
}


def _is_supported(config: EncoderConfig) -> bool:
    return not isinstance(config.layer(0).positions, DisentangledPositions)


def graph_of(network: Network, head: str, layers: Sequence[ProjectionLayer]) -> Graph:
    """The graph of a network: ``logits`` of a head, ``start_logits`` and ``end_logits`` of question answering, or for
    "" ``sentence_embedding``.

    Args:
        layers: settings of the projection layers of the network.

    Raises:
        UsageError: an architecture or a head that cannot be exported.
    """
    if not _is_supported(network.config):
        known = ", ".join(name for name, record in ARCHITECTURES.items() if _is_supported(record.config()))
        raise UsageError(
            f"{network.architecture.model_type} models with disentangled attention cannot be exported: supported are "
            f"encoders of {known}"
        )
    with torch.inference_mode():
        encoder = EncoderGraph(network)
        graph, tokens = encoder.graph, ("batch", "length")
        if not head:
            graph.output("sentence_embedding", encoder.sentence_vectors(layers), "batch", network.projection.width)
            return graph
        logits = encoder.logits(head)
        if head == "question_answering":
            for name, part in zip(("start", "end"), graph.split(logits, (1, 1), axis=2), strict=True):
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
