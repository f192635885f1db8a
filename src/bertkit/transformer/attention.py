"""Multi-head self-attention (Vaswani et al. 2017, section 3.2.2).

Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a sequence.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from bertkit.transformer.config import TransformerConfig
from bertkit.transformer.kernels import attention_with_probs, packed_attention


class SelfAttention(nn.Module):
    """Every token looks at every token of its own sequence, in ``num_heads`` ways at once."""

    def __init__(self, config: TransformerConfig) -> None:
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
        heads = (self.num_heads, -1)
        query = self.query(hidden_states).unflatten(-1, heads)  # (T, D) -> (T, H, K)
        key = self.key(hidden_states).unflatten(-1, heads)
        value = self.value(hidden_states).unflatten(-1, heads)
        dropout_prob = self.dropout_prob if self.training else 0.0
        if with_probs:
            context, probs = attention_with_probs(query, key, value, seqlens, dropout_prob)
        else:
            context, probs = packed_attention(query, key, value, seqlens, dropout_prob), None
        return self.output(context.flatten(-2)), probs  # (T, H, K) -> (T, D)
