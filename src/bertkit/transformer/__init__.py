"""Batch to hidden states: the Transformer encoder of BERT.

Takes: Batch.
Gives: hidden states (total_tokens, hidden_size), one for every token, and the pooled [CLS] of every sequence.
May import: errors, compiled, batch.
"""

from bertkit.transformer.config import SIZES, TransformerConfig
from bertkit.transformer.encoder import Encoder, EncoderOutput
from bertkit.transformer.initialization import initialize
from bertkit.transformer.prepared import PreparedEncoder

__all__ = ["SIZES", "Encoder", "EncoderOutput", "PreparedEncoder", "TransformerConfig", "initialize"]
