"""Batch to hidden states: the Transformer encoder of BERT, and the modern one.

Takes: Batch.
Gives: hidden states (total_tokens, hidden_size), one for every token, and the pooled [CLS] of every sequence, which
    the modern encoder has not.
May import: errors, executor, compiled, batch.
"""

from bertkit.transformer.config import SIZES, BertConfig
from bertkit.transformer.encoder import BertEncoder, EncoderOutput
from bertkit.transformer.initialization import initialize
from bertkit.transformer.modernbert.config import ModernBertConfig
from bertkit.transformer.modernbert.encoder import ModernBertEncoder
from bertkit.transformer.modernbert.prepared import PreparedModernBertEncoder
from bertkit.transformer.prepared import PreparedBertEncoder

AnyConfig = BertConfig | ModernBertConfig
AnyEncoder = BertEncoder | ModernBertEncoder
AnyPrepared = PreparedBertEncoder | PreparedModernBertEncoder

CONFIGS: dict[str, type[BertConfig] | type[ModernBertConfig]] = {
    "bert": BertConfig,
    "modernbert": ModernBertConfig,
}
"""The architectures, by their ``model_type`` in a published ``config.json``."""


def prepare(encoder: AnyEncoder, precision: str = "float32") -> AnyPrepared:
    """An encoder prepared for inference at a precision.

    Raises:
        UsageError: a precision that this encoder, or its device, does not offer.
    """
    if isinstance(encoder, ModernBertEncoder):
        return PreparedModernBertEncoder(encoder, precision)
    return PreparedBertEncoder(encoder, precision)


__all__ = [
    "CONFIGS",
    "SIZES",
    "AnyConfig",
    "AnyEncoder",
    "AnyPrepared",
    "BertConfig",
    "BertEncoder",
    "EncoderOutput",
    "ModernBertConfig",
    "ModernBertEncoder",
    "PreparedBertEncoder",
    "PreparedModernBertEncoder",
    "initialize",
    "prepare",
]
