"""Batch to hidden states: the Transformer encoders of BERT and ModernBERT.

Takes: Batch.
Gives: hidden states (total_tokens, hidden_size), one for every token, and the pooled [CLS] of every sequence, where an
    encoder has a pooler.
May import: errors, executor, compiled, batch.
"""

from bertkit.transformer.albert import AlbertConfig, AlbertEncoder
from bertkit.transformer.config import SIZES, BertConfig
from bertkit.transformer.deberta.config import DebertaConfig
from bertkit.transformer.deberta.encoder import DebertaEncoder
from bertkit.transformer.encoder import BertEncoder
from bertkit.transformer.gated.config import GteConfig, NomicBertConfig
from bertkit.transformer.gated.encoder import GatedEncoder
from bertkit.transformer.gated.prepared import PreparedGatedEncoder
from bertkit.transformer.interface import Encoder, EncoderConfig, EncoderOutput, PreparedEncoder
from bertkit.transformer.modernbert.config import ModernBertConfig
from bertkit.transformer.modernbert.encoder import ModernBertEncoder
from bertkit.transformer.modernbert.prepared import PreparedModernBertEncoder
from bertkit.transformer.prepared import PreparedBertEncoder
from bertkit.transformer.recorder import LayerRecord, Recorder
from bertkit.transformer.relative_bias import RelativeBiasEncoder

__all__ = [
    "SIZES",
    "AlbertConfig",
    "AlbertEncoder",
    "BertConfig",
    "BertEncoder",
    "DebertaConfig",
    "DebertaEncoder",
    "Encoder",
    "EncoderConfig",
    "EncoderOutput",
    "GatedEncoder",
    "GteConfig",
    "LayerRecord",
    "ModernBertConfig",
    "ModernBertEncoder",
    "NomicBertConfig",
    "PreparedBertEncoder",
    "PreparedEncoder",
    "PreparedGatedEncoder",
    "PreparedModernBertEncoder",
    "Recorder",
    "RelativeBiasEncoder",
]
