"""Multi-head self-attention with rotary positions, over the whole sequence or a window of it.

Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a sequence.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from bertkit.transformer.kernels import attention_with_probs, linear, self_attention
from bertkit.transformer.modernbert.config import ModernBertConfig
from bertkit.transformer.rotary import Rotary, rotate


class ModernBertAttention(nn.Module):
    """Multi-head self-attention: full within the sequence, in a local layer within a sliding window."""

    def __init__(self, config: ModernBertConfig, layer: int) -> None:
        super().__init__()
        is_global = config.is_global(layer)
        self.num_heads = config.num_attention_heads
        self.window = None if is_global else config.local_attention // 2  # tokens seen to each side; None: all
        self.theta = config.global_rope_theta if is_global else config.local_rope_theta
        self.dropout_prob = config.attention_dropout
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(
        self, normed: Tensor, seqlens: Sequence[int], rotary: Rotary, *, with_probs: bool = False
    ) -> tuple[Tensor, list[Tensor] | None]:
        """(T, D) to (T, D), and when asked each sequence's (H, L, L) probabilities."""
        query_key_value = linear(normed, self.query_key_value.weight, None)  # (T, 3 D)
        dropout_prob = self.dropout_prob if self.training else 0.0
        if with_probs:
            query, key, value = query_key_value.unflatten(-1, (3, self.num_heads, -1)).unbind(1)  # (T, H, K) each
            query, key = rotate(query, rotary), rotate(key, rotary)
            context, probs = attention_with_probs(query, key, value, seqlens, dropout_prob, self.window)
            context = context.flatten(-2)  # (T, H, K) -> (T, D)
        else:
            context = self_attention(query_key_value, seqlens, self.num_heads, dropout_prob, rotary, self.window)
            probs = None
        return linear(context, self.output.weight, None), probs
