"""The only place that knows which kernel runs. One signature each, equality-tested against a plain reference."""

from bertkit.transformer.kernels.attention import attention_with_probs, packed_attention
from bertkit.transformer.kernels.linear import OneDNNLinear, PlainLinear, linear_for

__all__ = ["OneDNNLinear", "PlainLinear", "attention_with_probs", "linear_for", "packed_attention"]
