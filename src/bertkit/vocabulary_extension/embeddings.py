"""Embeddings of added words, initialized as the mean of the embeddings of their pieces."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from bertkit.architectures import Network
from bertkit.errors import UsageError
from bertkit.tokenizer import Tokenizer


@torch.no_grad()
def extend_embeddings(network: Network, old: Tokenizer, new: Tokenizer) -> None:
    """Add embeddings and output biases to ``network``, in place, for the entries of ``new`` beyond ``old``.

    Each is the mean over the pieces into which ``old`` splits the word (Gee et al. 2022, "Fast Vocabulary Transfer for
    Language Model Compression"). All other weights keep their bits. Rows that the embedding has beyond the old
    vocabulary are used first.

    Raises:
        UsageError: ``new`` does not begin with all entries of ``old``.
    """
    size = len(old.vocabulary)
    if new.vocabulary.tokens[:size] != old.vocabulary.tokens:
        raise UsageError("the new vocabulary does not begin with the entries of the old one: use extend_vocabulary")
    words = new.vocabulary.tokens[size:]
    pieces = [torch.from_numpy(old.encode(word).input_ids[1:-1]).long() for word in words]
    embedding = network.encoder.embeddings.word
    weight = _extended(embedding.weight, size, pieces)
    network.encoder.embeddings.word = nn.Embedding.from_pretrained(
        weight, freeze=not embedding.weight.requires_grad, padding_idx=embedding.padding_idx
    )
    if "masked_lm" in network.heads:
        head: Any = network.heads["masked_lm"]
        head.bias = nn.Parameter(_extended(head.bias, size, pieces))
    config: Any = replace(network.config, vocab_size=len(weight))
    network.config = network.encoder.config = config


def _extended(rows: torch.Tensor, size: int, pieces: list[torch.Tensor]) -> torch.Tensor:
    """``rows`` (V, ...) with the means of ``pieces`` from row ``size`` on; never fewer rows than before."""
    extended = rows.new_zeros(max(len(rows), size + len(pieces)), *rows.shape[1:])
    extended[: len(rows)] = rows
    for row, ids in enumerate(pieces, start=size):
        extended[row] = rows[ids].mean(dim=0)
    return extended
