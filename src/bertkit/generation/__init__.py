"""Text generation: greedy search, beam search and sampling.

Takes: a causal or an encoder-decoder model; prompts or sources.
Gives: generated texts with their log probabilities, and the likeliest tokens of each step.
May import: later, errors, files, locate, device, executor, compiled, randomness, tokenizer, batch, transformer, heads,
architectures, tasks, checkpoint, pages, model.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.checkpoint.generation_rules import Ending
    from bertkit.generation.causal import Causal
    from bertkit.generation.engine import Decoding, Generated, generate_ids
    from bertkit.generation.generator import GeneratedText, Generator
    from bertkit.generation.opening import load_generator, writes_text
    from bertkit.generation.sequence_to_sequence import SequenceToSequence
    from bertkit.generation.settings import GenerationSettings

__getattr__, __dir__ = on_demand(__name__)

__all__ = [
    "Causal",
    "Decoding",
    "Ending",
    "Generated",
    "GeneratedText",
    "GenerationSettings",
    "Generator",
    "SequenceToSequence",
    "generate_ids",
    "load_generator",
    "writes_text",
]
