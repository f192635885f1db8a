"""Transformer encoders and decoders.

Takes: Batch.
Gives: hidden states (total_tokens, hidden_size), one per token, and the pooled [CLS] of each sequence if the encoder
    has a pooler.
May import: later, errors, device, executor, compiled, batch.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.transformer.albert import AlbertConfig, AlbertEncoder
    from bertkit.transformer.config import SIZES, BertConfig
    from bertkit.transformer.deberta.config import DebertaConfig
    from bertkit.transformer.deberta.encoder import DebertaEncoder
    from bertkit.transformer.decoder import Decoder
    from bertkit.transformer.encoder import BertEncoder
    from bertkit.transformer.gated.config import GteConfig, NomicBertConfig
    from bertkit.transformer.gated.encoder import GatedEncoder
    from bertkit.transformer.gated.prepared import PreparedGatedEncoder
    from bertkit.transformer.gpt2 import Gpt2Config, Gpt2Encoder
    from bertkit.transformer.interface import Encoder, EncoderConfig, EncoderOutput, PreparedEncoder
    from bertkit.transformer.modernbert.config import ModernBertConfig
    from bertkit.transformer.modernbert.encoder import ModernBertEncoder
    from bertkit.transformer.modernbert.prepared import PreparedModernBertEncoder
    from bertkit.transformer.original import TransformerConfig
    from bertkit.transformer.prepared import PreparedBertEncoder
    from bertkit.transformer.prepared_decoder import PreparedCausalEncoder, PreparedDecoder
    from bertkit.transformer.recorder import LayerRecord, Recorder
    from bertkit.transformer.relative_bias import RelativeBiasEncoder

__getattr__, __dir__ = on_demand(__name__)

__all__ = [
    "SIZES",
    "AlbertConfig",
    "AlbertEncoder",
    "BertConfig",
    "BertEncoder",
    "DebertaConfig",
    "DebertaEncoder",
    "Decoder",
    "Encoder",
    "EncoderConfig",
    "EncoderOutput",
    "GatedEncoder",
    "Gpt2Config",
    "Gpt2Encoder",
    "GteConfig",
    "LayerRecord",
    "ModernBertConfig",
    "ModernBertEncoder",
    "NomicBertConfig",
    "PreparedBertEncoder",
    "PreparedCausalEncoder",
    "PreparedDecoder",
    "PreparedEncoder",
    "PreparedGatedEncoder",
    "PreparedModernBertEncoder",
    "Recorder",
    "RelativeBiasEncoder",
    "TransformerConfig",
]
