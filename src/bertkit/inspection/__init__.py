"""Inspection of models: attention, predictions of each layer, words in context, heads, probes.

Takes: a Model and texts.
Gives: views: numbers, and a self-contained page.
May import: later, errors, files, tokenizer, batch, transformer, heads, architectures, tasks, inference, clusters,
pages, model, words.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.inspection.attention import AttentionView as AttentionView
    from bertkit.inspection.attention import inspect_attention as inspect_attention
    from bertkit.inspection.contexts import ContextsView as ContextsView
    from bertkit.inspection.contexts import inspect_contexts as inspect_contexts
    from bertkit.inspection.contextual import LabeledWords as LabeledWords
    from bertkit.inspection.contextual import Tree as Tree
    from bertkit.inspection.contextual import read_trees as read_trees
    from bertkit.inspection.contrast import ContrastView as ContrastView
    from bertkit.inspection.contrast import inspect_contrast as inspect_contrast
    from bertkit.inspection.difference import DifferenceView as DifferenceView
    from bertkit.inspection.difference import inspect_difference as inspect_difference
    from bertkit.inspection.heads import HeadsView as HeadsView
    from bertkit.inspection.heads import inspect_heads as inspect_heads
    from bertkit.inspection.inputs import InputView as InputView
    from bertkit.inspection.inputs import inspect_input as inspect_input
    from bertkit.inspection.predictions import FillView as FillView
    from bertkit.inspection.predictions import LensView as LensView
    from bertkit.inspection.predictions import SurpriseView as SurpriseView
    from bertkit.inspection.predictions import inspect_fill as inspect_fill
    from bertkit.inspection.predictions import inspect_lens as inspect_lens
    from bertkit.inspection.predictions import inspect_surprise as inspect_surprise
    from bertkit.inspection.probes import ProbeView as ProbeView
    from bertkit.inspection.probes import inspect_probes as inspect_probes
    from bertkit.inspection.sentences import MapView as MapView
    from bertkit.inspection.sentences import NextSentenceView as NextSentenceView
    from bertkit.inspection.sentences import inspect_map as inspect_map
    from bertkit.inspection.sentences import inspect_next_sentence as inspect_next_sentence
    from bertkit.inspection.side_by_side import SideBySideView as SideBySideView
    from bertkit.inspection.structure import StructureView as StructureView
    from bertkit.inspection.structure import inspect_structure as inspect_structure
    from bertkit.inspection.teaching import TeachingView as TeachingView
    from bertkit.inspection.teaching import inspect_all as inspect_all
    from bertkit.inspection.teaching import write_folder as write_folder
    from bertkit.inspection.teaching import write_index as write_index
    from bertkit.inspection.view import View as View
    from bertkit.inspection.why import SimilarityView as SimilarityView
    from bertkit.inspection.why import WhyView as WhyView
    from bertkit.inspection.why import inspect_similarity as inspect_similarity
    from bertkit.inspection.why import inspect_why as inspect_why

__getattr__, __dir__ = on_demand(__name__)
