"""Pre-training examples from a corpus, and the pre-training loss.

Takes: a TokenShard.
Gives: sources of sequences (blocks of tokens, sentence pairs); masked batches by position; the loss of pre-training.
May import: errors, device, compiled, randomness, tokenizer, batch, heads, architectures, corpus, tasks.
"""

from bertkit.objectives.every_token import EveryToken
from bertkit.objectives.loader import Loader, Objective, PretrainingBatch
from bertkit.objectives.masking import Masking, MaskUnit, continues_word
from bertkit.objectives.pretraining_loss import PretrainingTask
from bertkit.objectives.sentence_pairs import SentencePairs
from bertkit.objectives.sequences import Sequences, Source, SpecialIds
from bertkit.objectives.static_shapes import StaticBatch, StaticShape
from bertkit.objectives.token_blocks import TokenBlocks

__all__ = [
    "EveryToken",
    "Loader",
    "MaskUnit",
    "Masking",
    "Objective",
    "PretrainingBatch",
    "PretrainingTask",
    "SentencePairs",
    "Sequences",
    "Source",
    "SpecialIds",
    "StaticBatch",
    "StaticShape",
    "TokenBlocks",
    "continues_word",
]
