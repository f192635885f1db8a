"""Looks inside a model: attention, predictions of each layer, words in context, heads, probes.

Takes: a Model and texts.
Gives: views: their numbers first, then one self-contained page of them.
May import: errors, files, tokenizer, batch, transformer, heads, architectures, inference, neighbors, pages, model.
"""

from bertkit.inspection.attention import AttentionView, inspect_attention
from bertkit.inspection.predictions import (
    FillView,
    LensView,
    SurpriseView,
    inspect_fill,
    inspect_lens,
    inspect_surprise,
)
from bertkit.inspection.view import View

__all__ = [
    "AttentionView",
    "FillView",
    "LensView",
    "SurpriseView",
    "View",
    "inspect_attention",
    "inspect_fill",
    "inspect_lens",
    "inspect_surprise",
]
