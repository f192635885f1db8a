"""One pre-norm ModernBERT layer.

Shape letters: T total_tokens, D hidden_size.
"""

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.kernels import add_then_norm
from bertkit.transformer.modernbert.attention import ModernBertAttention
from bertkit.transformer.modernbert.config import ModernBertConfig
from bertkit.transformer.modernbert.feed_forward import GatedFeedForward
from bertkit.transformer.recorder import LayerRecord
from bertkit.transformer.rotary import Rotary


class ModernBertLayer(nn.Module):
    """``x = x + attention(norm(x)); x = x + feed_forward(norm(x))`` (Xiong et al. 2020, figure 1 b).

    The first layer has no attention norm, as embeddings are normalized already.
    """

    def __init__(self, config: ModernBertConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = norm_of(config) if layer else None
        self.attention = ModernBertAttention(config, layer)
        self.feed_forward_norm = norm_of(config)
        self.feed_forward = GatedFeedForward(config)
        self.attention_dropout = nn.Dropout(config.attention_dropout)

    def forward(
        self,
        hidden_states: Tensor,
        normed: Tensor,
        next_norm: nn.LayerNorm,
        batch: Batch,
        rotary: Rotary,
        record: LayerRecord | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One layer. Each addition is fused with the next normalization, so a layer ends with the norm of the next one.

        Args:
            hidden_states: (T, D), the residual stream.
            normed: (T, D), the same after this layer's attention norm.
            next_norm: norm of the next layer, or the encoder's final norm.

        Returns:
            The residual stream, and the same after ``next_norm``.
        """
        attended = self.attention(normed, batch, rotary, record)
        hidden_states, normed = add_then_norm(attended, hidden_states, self.feed_forward_norm, self.attention_dropout)
        expanded = self.feed_forward(normed)
        if record is not None:
            record.attention_output, record.feed_forward_output = attended, expanded
        return add_then_norm(expanded, hidden_states, next_norm)

    def weights(self) -> list[Tensor]:
        """Weights of the four products: query, key and value; output; gate and expand; project."""
        attention, feed_forward = self.attention, self.feed_forward
        parts = (attention.query_key_value, attention.output, feed_forward.expand, feed_forward.project)
        return [part.weight for part in parts]


def norm_of(config: ModernBertConfig) -> nn.LayerNorm:
    """A layer normalization without bias."""
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
