"""Multi-head self-attention with rotary positions, over the whole sequence or a window of it.

Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a sequence.
"""

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.kernels import apply_linear, self_attention
from bertkit.transformer.modernbert.config import ModernBertConfig
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.rotary import Rotary


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

    def forward(self, normed: Tensor, batch: Batch, rotary: Rotary, record: LayerRecord | None = None) -> Tensor:
        """(T, D) to (T, D)."""
        query_key_value = apply_linear(normed, self.query_key_value)  # (T, 3 D)
        dropout_prob = self.dropout_prob if self.training else 0.0
        context = self_attention(
            query_key_value, batch, self.num_heads, dropout_prob, rotary, self.window, record=record
        )
        return apply_linear(context, self.output)
