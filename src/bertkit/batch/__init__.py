"""Encodings, or the tokens of a corpus, to batches: one packed row of tokens, no padding.

Takes: Encodings, a TokenShard, or at the border padded (batch_size, seq_len) tensors.
Gives: Batch: packed tensors with cu_seqlens; the same with labels; groups of examples under a token budget; examples of
pre-training by position: blocks of tokens or sentence pairs, masked.
May import: errors, compiled, randomness, tokenizer, corpus.
"""

from bertkit.batch.batch import Batch, pad, unpad
from bertkit.batch.collate import collate
from bertkit.batch.labelled import IGNORED, LabelledBatch, LabelledEncodings
from bertkit.batch.loader import Loader, PretrainingBatch
from bertkit.batch.masking import MASK_UNITS, Masking, continues_word
from bertkit.batch.sentence_pairs import SentencePairs
from bertkit.batch.sequences import Sequences, Source, SpecialIds
from bertkit.batch.token_blocks import TokenBlocks
from bertkit.batch.token_budget import even_parts, length_sorted_batches

__all__ = [
    "IGNORED",
    "MASK_UNITS",
    "Batch",
    "LabelledBatch",
    "LabelledEncodings",
    "Loader",
    "Masking",
    "PretrainingBatch",
    "SentencePairs",
    "Sequences",
    "Source",
    "SpecialIds",
    "TokenBlocks",
    "collate",
    "continues_word",
    "even_parts",
    "length_sorted_batches",
    "pad",
    "unpad",
]
