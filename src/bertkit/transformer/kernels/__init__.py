"""The only place that knows which kernel runs. One signature each, equality-tested against a plain reference."""

from bertkit.transformer.kernels.attention import attention_with_probs, packed_attention

__all__ = ["attention_with_probs", "packed_attention"]
