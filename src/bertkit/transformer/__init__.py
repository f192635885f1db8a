"""Batch to hidden states: the Transformer encoder of BERT, and the modern one.

Takes: Batch.
Gives: hidden states (total_tokens, hidden_size), one for every token, and the pooled [CLS] of every sequence, which
    the modern encoder has not.
May import: errors, executor, compiled, batch.
"""

from bertkit.transformer.config import SIZES, TransformerConfig
from bertkit.transformer.encoder import Encoder, EncoderOutput
from bertkit.transformer.initialization import initialize
from bertkit.transformer.modern.config import ModernConfig
from bertkit.transformer.modern.encoder import ModernEncoder
from bertkit.transformer.modern.prepared import PreparedModernEncoder
from bertkit.transformer.prepared import PreparedEncoder

AnyConfig = TransformerConfig | ModernConfig
AnyEncoder = Encoder | ModernEncoder
AnyPrepared = PreparedEncoder | PreparedModernEncoder

CONFIGS: dict[str, type[TransformerConfig] | type[ModernConfig]] = {
    "bert": TransformerConfig,
    "modernbert": ModernConfig,
}
"""The architectures, by their ``model_type`` in a published ``config.json``."""


def prepare(encoder: AnyEncoder, precision: str = "float32") -> AnyPrepared:
    """An encoder prepared for inference at a precision.

    Raises:
        UsageError: a precision that this encoder, or its device, does not offer.
    """
    if isinstance(encoder, ModernEncoder):
        return PreparedModernEncoder(encoder, precision)
    return PreparedEncoder(encoder, precision)


__all__ = [
    "CONFIGS",
    "SIZES",
    "AnyConfig",
    "AnyEncoder",
    "AnyPrepared",
    "Encoder",
    "EncoderOutput",
    "ModernConfig",
    "ModernEncoder",
    "PreparedEncoder",
    "PreparedModernEncoder",
    "TransformerConfig",
    "initialize",
    "prepare",
]
