"""Text generation: greedy search, beam search and sampling.

Takes: a causal or an encoder-decoder model; prompts or sources.
Gives: generated texts with their log probabilities, and the likeliest tokens of each step.
May import: later, errors, files, locate, device, executor, compiled, randomness, tokenizer, batch, transformer, heads,
architectures, tasks, checkpoint, pages, extraction, model.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.checkpoint.generation_rules import Ending as Ending
    from bertkit.generation.causal import Causal as Causal
    from bertkit.generation.engine import Decoding as Decoding
    from bertkit.generation.engine import Generated as Generated
    from bertkit.generation.engine import completed as completed
    from bertkit.generation.engine import generation_steps as generation_steps
    from bertkit.generation.generator import GeneratedText as GeneratedText
    from bertkit.generation.generator import Generator as Generator
    from bertkit.generation.opening import load_generator as load_generator
    from bertkit.generation.opening import writes_text as writes_text
    from bertkit.generation.sequence_to_sequence import SequenceToSequence as SequenceToSequence
    from bertkit.generation.settings import GenerationSettings as GenerationSettings

__getattr__, __dir__ = on_demand(__name__)
