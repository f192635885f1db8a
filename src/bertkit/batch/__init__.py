"""Encodings to batches: one packed row of tokens, no padding.

Takes: Encodings, or padded (batch_size, seq_len) tensors.
Gives: Batch: packed tensors with cu_seqlens; LabeledBatch; groups of examples under a token budget.
May import: later, errors, device, compiled, randomness, tokenizer.
"""

from bertkit.batch.batch import Batch, pad, unpad
from bertkit.batch.collate import batch_of_ids, collate, packed
from bertkit.batch.label_columns import LabelColumns, change_labels
from bertkit.batch.labeled import IGNORED, LabeledBatch, LabeledEncodings
from bertkit.batch.token_budget import even_parts, length_sorted_batches

__all__ = [
    "IGNORED",
    "Batch",
    "LabelColumns",
    "LabeledBatch",
    "LabeledEncodings",
    "batch_of_ids",
    "change_labels",
    "collate",
    "even_parts",
    "length_sorted_batches",
    "packed",
    "pad",
    "unpad",
]
