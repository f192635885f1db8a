"""Transformer layers: post-norm (BERT), pre-norm (GPT-2), and decoder layers with cross-attention.

Shape letters: T total_tokens, S source tokens, D hidden_size.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.transformer.attention import CrossAttention, SelfAttention
from bertkit.transformer.config import BertConfig
from bertkit.transformer.feed_forward import FeedForward
from bertkit.transformer.kernels import add_norm, dropout, joined
from bertkit.transformer.recorder import LayerRecord


class EncoderLayer(nn.Module):
    """``x = norm(x + attention(x)); x = norm(x + feed_forward(x))`` (Vaswani et al. 2017, section 3.1), each sum with
    dropout on its second term in training.

    Args:
        attention: class of the attention, created from the config.
    """

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
        batch: Batch,
        record: LayerRecord | None = None,
        bias: Any = None,
    ) -> Tensor:
        """(T, D) to (T, D); ``record`` and ``bias`` as in `SelfAttention.forward`."""
        attended = self.attention(hidden_states, batch, record, bias)
        hidden_states = add_norm(attended, hidden_states, self.attention_norm, self.attention_dropout)
        expanded = self.feed_forward(hidden_states)
        if record is not None:
            record.attention_output, record.feed_forward_output = attended, expanded
        return add_norm(expanded, hidden_states, self.feed_forward_norm, self.dropout)

    def linears(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of the four matrix products: query, key and value as one (3 D outputs); output; expand;
        project."""
        attention, feed_forward = self.attention, self.feed_forward
        return [
            joined(layers)
            for layers in (attention.inputs(), [attention.output], [feed_forward.expand], [feed_forward.project])
        ]


class PreNormLayer(EncoderLayer):
    """``x = x + attention(norm(x)); x = x + feed_forward(norm(x))`` (Radford et al. 2019, section 2.3)."""

    def forward(
        self,
        hidden_states: Tensor,
        batch: Batch,
        record: LayerRecord | None = None,
        bias: Any = None,
    ) -> Tensor:
        """(T, D) to the same."""
        attended = self.attention(self.attention_norm(hidden_states), batch, record, bias)
        hidden_states = hidden_states + dropout(attended, self.attention_dropout)
        expanded = self.feed_forward(self.feed_forward_norm(hidden_states))
        if record is not None:
            record.attention_output, record.feed_forward_output = attended, expanded
        return hidden_states + dropout(expanded, self.dropout)


class DecoderLayer(EncoderLayer):
    """`EncoderLayer` with ``x = norm(x + cross_attention(x, source))`` between its halves (Vaswani et al. 2017, section
    3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.cross_attention = CrossAttention(config)
        self.cross_attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.cross_attention_dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(  # pyrefly: ignore
        self,
        hidden_states: Tensor,
        batch: Batch,
        source: Tensor,
        source_seqlens: Sequence[int],
        record: LayerRecord | None = None,
    ) -> Tensor:
        """(T, D) of the decoder and (S, D) of the encoder to (T, D)."""
        attended = self.attention(hidden_states, batch, record)
        hidden_states = add_norm(attended, hidden_states, self.attention_norm, self.attention_dropout)
        crossed = self.cross_attention(hidden_states, batch.seqlens, source, source_seqlens, record)
        hidden_states = add_norm(crossed, hidden_states, self.cross_attention_norm, self.cross_attention_dropout)
        expanded = self.feed_forward(hidden_states)
        if record is not None:
            record.attention_output, record.feed_forward_output = attended, expanded
        return add_norm(expanded, hidden_states, self.feed_forward_norm, self.dropout)
