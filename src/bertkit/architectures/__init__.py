"""One record for each supported ``model_type``, and the network assembled from it.

Takes: an encoder's config.
Gives: Architecture: config.json read and written, encoder, prepared encoder, heads, tensor names, initial values;
Network.
May import: later, errors, files, tokenizer, batch, transformer, heads.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.architectures.architecture import Architecture
    from bertkit.architectures.initialization import initialize
    from bertkit.architectures.network import Network, NetworkOutput
    from bertkit.architectures.registry import ARCHITECTURES, architecture_of, prepare

__getattr__, __dir__ = on_demand(__name__)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Network",
    "NetworkOutput",
    "architecture_of",
    "initialize",
    "prepare",
]
