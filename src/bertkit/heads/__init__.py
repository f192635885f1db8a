"""Hidden states to logits or vectors.

Takes: hidden states (total_tokens, hidden_size) and pooled [CLS] vectors (batch_size, hidden_size).
Gives: logits of each head; one vector for each sequence by pooling.
May import: errors, tokenizer, batch, transformer.
"""

from bertkit.heads.classification import VectorClassificationHead
from bertkit.heads.layer_selection import NAMED_LAYERS, LayerSelection
from bertkit.heads.network import HEADS, HEADS_WITH_LABELS, KINDS, Network, NetworkOutput
from bertkit.heads.pooling import POOLINGS

__all__ = [
    "HEADS",
    "HEADS_WITH_LABELS",
    "KINDS",
    "NAMED_LAYERS",
    "POOLINGS",
    "LayerSelection",
    "Network",
    "NetworkOutput",
    "VectorClassificationHead",
]
