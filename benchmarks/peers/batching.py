"""Efficient code around an engine that takes padded arrays: tokenization, length-sorted batches, mean pooling."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

if TYPE_CHECKING:
    import torch

MAX_LENGTH = 256  # tokens; all-MiniLM-L6-v2's own max_seq_length


def open_tokenizer(folder: Path, max_length: int = MAX_LENGTH) -> Tokenizer:
    """The published fast tokenizer, with truncation at ``max_length`` and without padding."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer


def token_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]


def length_sorted_batches(ids: Sequence[Sequence[int]], tokens_per_batch: int) -> list[np.ndarray]:
    """Indices, longest first, in batches of at most ``tokens_per_batch`` tokens, padding included."""
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    batches, start = [], 0
    while start < len(order):
        size = max(1, tokens_per_batch // len(ids[order[start]]))
        batches.append(np.array(order[start : start + size]))
        start += size
    return batches


def pad(ids: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """(B, L) input_ids, padded with 0 on the right, and (B, L) attention_mask; int64."""
    lengths = np.array([len(row) for row in ids])
    attention_mask = np.arange(lengths.max()) < lengths[:, None]
    input_ids = np.zeros(attention_mask.shape, np.int64)
    input_ids[attention_mask] = np.concatenate(ids)
    return input_ids, attention_mask.astype(np.int64)


def mean_pool(hidden: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(B, L, D) padded hidden states -> (B, D) means of the first ``lengths``, scaled to length 1."""
    weights = (np.arange(hidden.shape[1]) < lengths[:, None]).astype(hidden.dtype)  # (B, L)
    sums = np.matmul(weights[:, None], hidden)[:, 0]  # their scale does not matter: they are normalized
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def padded_encoder(published: Path) -> "torch.nn.Module":
    """A model of (B, L) input_ids and attention_mask that returns (B, D) means of the hidden states, scaled to
    length 1: for conversion."""
    import torch
    from transformers import AutoModel

    class SentenceEncoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Attention spelled out: OpenVINO fuses it more tightly than the sdpa call (6 fewer transposes).
            self.bert = AutoModel.from_pretrained(published, attn_implementation="eager", dtype=torch.float32).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)

    return SentenceEncoder()
