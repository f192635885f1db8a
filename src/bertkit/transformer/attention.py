"""Multi-head self-attention and cross-attention (Vaswani et al. 2017, section 3.2.2): the layers with weights.

The computation between them, ``softmax(Q K^T / sqrt(K)) V`` for each head of each sequence, has no weights: its
reference in torch's own operations is `packed_attention` in ``kernels/attention.py``.
Shape letters: T total_tokens, S source tokens, D hidden_size, H num_heads, K head_dim.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.config import BertConfig
from bertkit.transformer.kernels import (
    apply_linear,
    cross_attention,
    recorded_cross_attention,
    self_attention,
)
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.window import CAUSAL, Window


class SelfAttention(nn.Module):
    """Multi-head self-attention: every token attends to all tokens of its sequence, or in a decoder to itself and
    earlier ones.

    ``output(concat(head_1, ..., head_H))`` with ``head_i = softmax(Q_i K_i^T / sqrt(K)) V_i``. Each head has K = D / H
    columns of the outputs of ``query``, ``key`` and ``value``: the first head the first K, and so on.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.window: Window | None = CAUSAL if config.is_decoder else None
        self.make_inputs(config)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def make_inputs(self, config: BertConfig) -> None:
        """Create the layers of `inputs`."""
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def inputs(self) -> tuple[nn.Linear, ...]:
        """The layers whose concatenated outputs are queries, keys and values (T, 3 D)."""
        return self.query, self.key, self.value

    def forward(
        self,
        hidden_states: Tensor,
        batch: Batch,
        record: LayerRecord | None = None,
        bias: Any = None,
    ) -> Tensor:
        """(T, D) to (T, D).

        Args:
            record: receives queries, keys, values, scores and probabilities; None: nothing is recorded.
            bias: terms added to the scores, as in `packed_attention`; None in BERT.
        """
        query_key_value = apply_linear(hidden_states, *self.inputs())  # (T, 3 D)
        dropout_prob = self.dropout_prob if self.training else 0.0
        context = self_attention(
            query_key_value, batch, self.num_heads, dropout_prob, window=self.window, bias=bias, record=record
        )
        return apply_linear(context, self.output)

    def for_layer(self, bias: Any) -> Any:
        """This layer's bias, from the bias of all layers that `BertEncoder.distance_bias` returns."""
        return bias


class JoinedAttention(SelfAttention):
    """`SelfAttention` with one layer for queries, keys and values, as in GPT-2."""

    def make_inputs(self, config: BertConfig) -> None:
        """As `SelfAttention.make_inputs`."""
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)

    def inputs(self) -> tuple[nn.Linear, ...]:
        """As `SelfAttention.inputs`."""
        return (self.query_key_value,)


class CrossAttention(nn.Module):
    """Multi-head attention of a decoder to the hidden states of an encoder (Vaswani et al. 2017, section 3.2.3)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: Tensor,
        seqlens: Sequence[int],
        source: Tensor,
        source_seqlens: Sequence[int],
        record: LayerRecord | None = None,
    ) -> Tensor:
        """(T, D) hidden states of the decoder and (S, D) of the encoder to (T, D)."""
        query, key_value = apply_linear(hidden_states, self.query), apply_linear(source, self.key, self.value)
        dropout_prob = self.dropout_prob if self.training else 0.0
        attend = cross_attention if record is None else partial(recorded_cross_attention, record)
        context = attend(query, key_value, seqlens, source_seqlens, self.num_heads, dropout_prob)
        return apply_linear(context, self.output)
