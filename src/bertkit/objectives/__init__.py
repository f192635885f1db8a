"""Pre-training objectives: examples from a corpus, tokens to predict, networks and losses.

Takes: a TokenShard.
Gives: objectives by name; sources of sequences (blocks of tokens, sentence pairs); masked batches by position; losses.
May import: errors, later, device, compiled, randomness, tokenizer, batch, transformer, heads, architectures, corpus,
tasks.
"""

from bertkit.objectives.every_token import EveryToken
from bertkit.objectives.loader import Corruption, Loader, PretrainingBatch
from bertkit.objectives.masked_lm import MaskedLM
from bertkit.objectives.masking import Masking, MaskUnit, continues_word
from bertkit.objectives.next_sentence import NextSentence
from bertkit.objectives.objective import Companion, Objective
from bertkit.objectives.pretraining_loss import PretrainingTask
from bertkit.objectives.replaced_tokens import ReplacedTokens
from bertkit.objectives.sentence_order import SentenceOrder
from bertkit.objectives.sentence_pairs import SentencePairs
from bertkit.objectives.sequences import Sequences, Source, SpecialIds
from bertkit.objectives.static_shapes import StaticBatch, StaticShape
from bertkit.objectives.token_blocks import TokenBlocks

OBJECTIVES: dict[str, type[Objective]] = {
    kind.name: kind for kind in (MaskedLM, NextSentence, SentenceOrder, ReplacedTokens)
}
"""Pre-training objectives by name, the value of the setting "objective.name"."""

__all__ = [
    "OBJECTIVES",
    "Companion",
    "Corruption",
    "EveryToken",
    "Loader",
    "MaskUnit",
    "MaskedLM",
    "Masking",
    "NextSentence",
    "Objective",
    "PretrainingBatch",
    "PretrainingTask",
    "ReplacedTokens",
    "SentenceOrder",
    "SentencePairs",
    "Sequences",
    "Source",
    "SpecialIds",
    "StaticBatch",
    "StaticShape",
    "TokenBlocks",
    "continues_word",
]
