"""Multi-head self-attention (Vaswani et al. 2017, section 3.2.2).

Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a sequence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bertkit.transformer.config import BertConfig
from bertkit.transformer.kernels import attention_with_probs, linear, self_attention


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
        self, hidden_states: Tensor, seqlens: Sequence[int], *, with_probs: bool = False
    ) -> tuple[Tensor, list[Tensor] | None]:
        """(T, D) to (T, D), and when asked each sequence's (H, L, L) probabilities."""
        query_key_value = linear(hidden_states, *self.together())  # (T, 3 D)
        dropout_prob = self.dropout_prob if self.training else 0.0
        if with_probs:
            query, key, value = query_key_value.unflatten(-1, (3, self.num_heads, -1)).unbind(1)  # (T, H, K) each
            context, probs = attention_with_probs(query, key, value, seqlens, dropout_prob)
            context = context.flatten(-2)  # (T, H, K) -> (T, D)
        else:
            context, probs = self_attention(query_key_value, seqlens, self.num_heads, dropout_prob), None
        return linear(context, self.output.weight, self.output.bias), probs

    def together(self) -> tuple[Tensor, Tensor]:
        """Query, key and value as one product: its weight (3 D, D) and bias."""
        parts = (self.query, self.key, self.value)
        return torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
