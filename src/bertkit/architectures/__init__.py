"""One record for each supported ``model_type``, and the network assembled from it.

Takes: an encoder's config.
Gives: Architecture: config.json read and written, encoder, prepared encoder, heads, tensor names, initial values;
Network.
May import: later, errors, files, tokenizer, batch, transformer, heads.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.architectures.architecture import Architecture as Architecture
    from bertkit.architectures.distilbert import DistilBertConfig as DistilBertConfig
    from bertkit.architectures.encoder_decoder import EncoderDecoder as EncoderDecoder
    from bertkit.architectures.encoder_decoder import EncoderDecoderConfig as EncoderDecoderConfig
    from bertkit.architectures.encoder_decoder import initialize_encoder_decoder as initialize_encoder_decoder
    from bertkit.architectures.initialization import initialize as initialize
    from bertkit.architectures.network import Network as Network
    from bertkit.architectures.network import NetworkOutput as NetworkOutput
    from bertkit.architectures.registry import ARCHITECTURES as ARCHITECTURES
    from bertkit.architectures.registry import architecture_of as architecture_of
    from bertkit.architectures.registry import prepare as prepare

__getattr__, __dir__ = on_demand(__name__)
