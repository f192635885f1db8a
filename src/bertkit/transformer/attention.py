"""Multi-head self-attention (Vaswani et al. 2017, section 3.2.2).

Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a sequence.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from bertkit.transformer.config import BertConfig
from bertkit.transformer.kernels import apply_linear, recorded_attention, self_attention
from bertkit.transformer.recorder import LayerRecord


class SelfAttention(nn.Module):
    """Multi-head self-attention: every token attends to every token of its sequence, in ``num_heads`` heads."""

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
        record: LayerRecord | None = None,
        bias: Any = None,
    ) -> Tensor:
        """(T, D) to (T, D); ``bias`` is what `packed_attention` adds to the scores."""
        query_key_value = apply_linear(hidden_states, self.query, self.key, self.value)  # (T, 3 D)
        dropout_prob = self.dropout_prob if self.training else 0.0
        attend = self_attention if record is None else partial(recorded_attention, record)
        return apply_linear(attend(query_key_value, seqlens, self.num_heads, dropout_prob, bias=bias), self.output)

    def for_layer(self, bias: Any) -> Any:
        """The bias of all layers, as `BertEncoder.distance_bias` gives it, as that of this layer."""
        return bias
