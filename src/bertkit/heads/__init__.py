"""Heads: hidden states to logits or vectors.

Takes: hidden states (total_tokens, hidden_size) and one vector for each sequence (batch_size, hidden_size).
Gives: logits of each head; one vector for each sequence by pooling.
May import: later, errors, batch, transformer.
"""

from bertkit.heads.classification import LateClassificationHead, SiameseClassificationHead, VectorClassificationHead
from bertkit.heads.kinds import HEADS, HEADS_WITH_LABELS, KINDS
from bertkit.heads.layer_selection import NAMED_LAYERS, LayerSelection
from bertkit.heads.pooling import POOLINGS, poolings_of
from bertkit.heads.projection import OUTPUT_ACTIVATIONS, DenseLayer, NormLayer, Projection, ProjectionLayer, UnitLength

__all__ = [
    "HEADS",
    "HEADS_WITH_LABELS",
    "KINDS",
    "NAMED_LAYERS",
    "OUTPUT_ACTIVATIONS",
    "POOLINGS",
    "DenseLayer",
    "LateClassificationHead",
    "LayerSelection",
    "NormLayer",
    "Projection",
    "ProjectionLayer",
    "SiameseClassificationHead",
    "UnitLength",
    "VectorClassificationHead",
    "poolings_of",
]
