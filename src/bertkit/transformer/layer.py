"""One encoder layer: attention and feed-forward, each with residual and layer normalization after it (post-norm)."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from bertkit.transformer.attention import SelfAttention
from bertkit.transformer.config import BertConfig
from bertkit.transformer.feed_forward import FeedForward
from bertkit.transformer.kernels import add_norm, joined
from bertkit.transformer.recorder import LayerRecord


class EncoderLayer(nn.Module):
    """``x = norm(x + attention(x)); x = norm(x + feed_forward(x))`` (Vaswani et al. 2017, section 3.1)."""

    def __init__(self, config: BertConfig, attention: Callable[[Any], SelfAttention] = SelfAttention) -> None:
        super().__init__()
        self.attention = attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention_dropout = nn.Dropout(config.attention_output_dropout_prob)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: Tensor,
        seqlens: Sequence[int],
        record: LayerRecord | None = None,
        bias: Any = None,
    ) -> Tensor:
        """(total_tokens, hidden_size) to the same; ``bias`` as of `SelfAttention`."""
        attended = self.attention(hidden_states, seqlens, record, bias)
        hidden_states = add_norm(attended, hidden_states, self.attention_norm, self.attention_dropout)
        expanded = self.feed_forward(hidden_states)
        if record is not None:
            record.attention_output, record.feed_forward_output = attended, expanded
        return add_norm(expanded, hidden_states, self.feed_forward_norm, self.dropout)

    def linears(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of its four products: query, key and value as one (3 D outputs), output, expand, project."""
        attention, feed_forward = self.attention, self.feed_forward
        query_key_value = (attention.query, attention.key, attention.value)
        return [
            joined(layers)
            for layers in (query_key_value, [attention.output], [feed_forward.expand], [feed_forward.project])
        ]
