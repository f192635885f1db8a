"""Single texts for masked language modeling: documents cut into blocks of tokens.

A document of at most ``max_seqlen`` - 2 tokens is one sequence. A longer one is cut every ``max_seqlen`` - 2 tokens,
with a different offset in every epoch, so that its words get different contexts; no token is lost and no block
crosses into the next document.
"""

import numpy as np

from bertkit.compiled import compiled
from bertkit.corpus.shards import TokenShard
from bertkit.errors import DataError, UsageError
from bertkit.objectives.sequences import Sequences, Source, SpecialIds, example_of
from bertkit.randomness import below, key_of


class TokenBlocks(Source):
    """Source of the blocks of a corpus.

    Raises:
        UsageError: ``max_seqlen`` below 3.
        DataError: a corpus without tokens.
    """

    def __init__(self, shard: TokenShard, special: SpecialIds, max_seqlen: int, seed: int) -> None:
        if max_seqlen < 3:
            raise UsageError(f"max_seqlen={max_seqlen}: expected at least 3, for [CLS], a token and [SEP]")
        if not len(shard.tokens):
            raise DataError("the corpus has no tokens: give text to learn from")
        self.tokens, self.special, self.seed = shard.tokens, special, seed
        self.documents = shard.sentences[shard.documents]  # (D + 1,) bounds of documents among the tokens
        self.room = max_seqlen - 2

    def take(self, epoch: int, indices: np.ndarray) -> Sequences:
        """The blocks of (B,) int64 ``indices``."""
        starts, lengths = _bounds(self.documents, self.counts(epoch)[0], self.room, self.seed, epoch, indices)
        cu_seqlens = np.zeros(len(indices) + 1, np.int64)
        np.cumsum(lengths + 2, out=cu_seqlens[1:])
        input_ids = np.empty(cu_seqlens[-1], np.int32)
        _fill(self.tokens, starts, cu_seqlens, self.special, input_ids)
        return Sequences(input_ids, np.zeros_like(input_ids), cu_seqlens, None)

    def count(self, epoch: int) -> tuple[np.ndarray, ...]:
        return (_count(self.documents, self.room, self.seed, epoch),)


@compiled
def _first_length(num_tokens, room, seed, epoch, document):
    """Number of tokens in the first block of a document."""
    return num_tokens if num_tokens <= room else 1 + below(key_of(seed, epoch, document), 0, room)


@compiled
def _count(documents, room, seed, epoch):
    cu_examples = np.zeros(len(documents), np.int64)
    for document in range(len(documents) - 1):
        num_tokens = documents[document + 1] - documents[document]
        first = _first_length(num_tokens, room, seed, epoch, document)
        blocks = 0 if num_tokens == 0 else 1 + (num_tokens - first + room - 1) // room
        cu_examples[document + 1] = cu_examples[document] + blocks
    return cu_examples


@compiled
def _bounds(documents, cu_examples, room, seed, epoch, indices):
    """Start of each block in the tokens, and its length."""
    starts, lengths = np.empty(len(indices), np.int64), np.empty(len(indices), np.int64)
    for i in range(len(indices)):
        document, block = example_of(cu_examples, indices[i])
        start, end = documents[document], documents[document + 1]
        if block:
            first = _first_length(end - start, room, seed, epoch, document)
            starts[i] = start + first + (block - 1) * room
            lengths[i] = min(room, end - starts[i])
        else:
            starts[i] = start
            lengths[i] = _first_length(end - start, room, seed, epoch, document)
    return starts, lengths


@compiled
def _fill(tokens, starts, cu_seqlens, special, input_ids):
    for i in range(len(starts)):
        first, last = cu_seqlens[i], cu_seqlens[i + 1] - 1
        input_ids[first], input_ids[last] = special.cls, special.sep
        for position in range(first + 1, last):
            input_ids[position] = tokens[starts[i] + position - first - 1]
