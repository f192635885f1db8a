"""Encodings to batches: one packed row of tokens, no padding.

Takes: Encodings, or at the border padded (batch_size, seq_len) tensors.
Gives: Batch: packed tensors with cu_seqlens; groups of examples under a token budget.
May import: errors, tokenizer.
"""

from bertkit.batch.batch import Batch, pad, unpad
from bertkit.batch.collate import collate
from bertkit.batch.token_budget import length_sorted_batches

__all__ = ["Batch", "collate", "length_sorted_batches", "pad", "unpad"]
