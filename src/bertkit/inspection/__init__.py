"""Inspection of models: attention, predictions of each layer, words in context, heads, probes.

Takes: a Model and texts.
Gives: views: numbers, and a self-contained page.
May import: errors, files, tokenizer, batch, transformer, heads, architectures, tasks, inference, clusters, pages,
model, words.
"""

from bertkit.inspection.attention import AttentionView, inspect_attention
from bertkit.inspection.contexts import ContextsView, inspect_contexts
from bertkit.inspection.contextual import LabeledWords, Tree, read_trees
from bertkit.inspection.contrast import ContrastView, inspect_contrast
from bertkit.inspection.difference import DifferenceView, inspect_difference
from bertkit.inspection.heads import HeadsView, inspect_heads
from bertkit.inspection.inputs import InputView, inspect_input
from bertkit.inspection.predictions import (
    FillView,
    LensView,
    SurpriseView,
    inspect_fill,
    inspect_lens,
    inspect_surprise,
)
from bertkit.inspection.probes import ProbeView, inspect_probes
from bertkit.inspection.sentences import MapView, NextSentenceView, inspect_map, inspect_next_sentence
from bertkit.inspection.side_by_side import SideBySideView
from bertkit.inspection.structure import StructureView, inspect_structure
from bertkit.inspection.teaching import TeachingView, inspect_all, write_folder, write_index
from bertkit.inspection.view import View
from bertkit.inspection.why import SimilarityView, WhyView, inspect_similarity, inspect_why

__all__ = [
    "AttentionView",
    "ContextsView",
    "ContrastView",
    "DifferenceView",
    "FillView",
    "HeadsView",
    "InputView",
    "LabeledWords",
    "LensView",
    "MapView",
    "NextSentenceView",
    "ProbeView",
    "SideBySideView",
    "SimilarityView",
    "StructureView",
    "SurpriseView",
    "TeachingView",
    "Tree",
    "View",
    "WhyView",
    "inspect_all",
    "inspect_attention",
    "inspect_contexts",
    "inspect_contrast",
    "inspect_difference",
    "inspect_fill",
    "inspect_heads",
    "inspect_input",
    "inspect_lens",
    "inspect_map",
    "inspect_next_sentence",
    "inspect_probes",
    "inspect_similarity",
    "inspect_structure",
    "inspect_surprise",
    "inspect_why",
    "read_trees",
    "write_folder",
    "write_index",
]
