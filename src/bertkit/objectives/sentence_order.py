"""Sentence order prediction, with masked language modeling: ALBERT's objective (Lan et al. 2020, section 3.1).

The sentences of a document are gathered until they fill a sequence, and split after a random sentence into two
consecutive texts. Half of these pairs are swapped. A single gathered sentence is split inside, and skipped if it is a
single token. One document in ten has a random shorter target length, and pairs that are too long lose tokens, both as
in `SentencePairs` (google-research/albert, create_pretraining_data.py).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bertkit.compiled import compiled
from bertkit.corpus.shards import TokenShard
from bertkit.errors import DataError
from bertkit.objectives.masked_lm import MaskedLM
from bertkit.objectives.sentence_pairs import PAIR, SHORT_PROB, SINGLE_SENTENCES, joined_pairs, set_pair
from bertkit.objectives.sequences import Sequences, Source, SpecialIds, example_of
from bertkit.randomness import below, key_of, random_bits, uniform


@dataclass(frozen=True)
class SentenceOrder(MaskedLM):
    """Predict masked tokens, and whether two consecutive texts are swapped."""

    name: ClassVar[str] = "sentence-order"
    heads: ClassVar[tuple[str, ...]] = ("masked_lm", "next_sentence")
    takes_pairs: ClassVar[bool] = True

    def source(self, shard: TokenShard, special: SpecialIds, max_seqlen: int, seed: int) -> Source:
        return OrderedPairs(shard, special, max_seqlen, seed)


class OrderedPairs(Source):
    """Source of pairs of consecutive texts, in their order (label 0) or swapped (label 1).

    Raises:
        DataError: no document of two sentences.
    """

    def __init__(self, shard: TokenShard, special: SpecialIds, max_seqlen: int, seed: int) -> None:
        if np.diff(shard.documents).max(initial=0) < 2:
            raise DataError(f"sentence order prediction {SINGLE_SENTENCES}")
        self.tokens, self.sentences, self.documents = shard.tokens, shard.sentences, shard.documents
        self.special, self.room, self.seed = special, max_seqlen - 3, seed

    def take(self, epoch: int, indices: np.ndarray) -> Sequences:
        """The pairs of (B,) int64 ``indices``."""
        pairs = _pairs(self.sentences, self.documents, self.counts(epoch)[0], self.room, self.seed, epoch, indices)
        return joined_pairs(self.tokens, self.special, pairs)

    def count(self, epoch: int) -> tuple[np.ndarray, ...]:
        return (_count(self.sentences, self.documents, self.room, self.seed, epoch),)


@compiled
def _pairs_of_document(sentences, documents, document, room, seed, epoch, wanted, pair):
    """Generate the pairs of a document up to number ``wanted``, whose row is written to ``pair``; returns their
    number."""
    key = key_of(seed, epoch, document)
    target, drawn = room, 1
    if uniform(key, 0) < SHORT_PROB:
        target = 2 + below(key, 1, room - 1)
        drawn = 2
    end = documents[document + 1]
    start = sentence = documents[document]
    number = 0
    while sentence < end:
        sentence += 1
        num_tokens = sentences[sentence] - sentences[start]
        if sentence < end and num_tokens < target:
            continue
        first, last, middle = sentences[start], sentences[sentence], sentences[sentence]
        if sentence - start >= 2:
            middle = sentences[start + 1 + below(key, drawn, sentence - start - 1)]
        elif num_tokens >= 2:
            middle = first + 1 + below(key, drawn, num_tokens - 1)
        is_swapped = uniform(key, drawn + 1) < 0.5
        drawn += 2
        start = sentence
        if middle in (first, last):
            continue
        if number == wanted:
            cut_key = random_bits(key, -1 - number)
            if is_swapped:
                set_pair(pair, middle, last, first, middle, 1, room, cut_key)
            else:
                set_pair(pair, first, middle, middle, last, 0, room, cut_key)
            return number + 1
        number += 1
    return number


@compiled
def _count(sentences, documents, room, seed, epoch):
    cu_examples, pair = np.zeros(len(documents), np.int64), np.empty(PAIR, np.int64)
    for document in range(len(documents) - 1):
        number = _pairs_of_document(sentences, documents, document, room, seed, epoch, -1, pair)
        cu_examples[document + 1] = cu_examples[document] + number
    return cu_examples


@compiled
def _pairs(sentences, documents, cu_examples, room, seed, epoch, indices):
    pairs = np.empty((len(indices), PAIR), np.int64)
    for i in range(len(indices)):
        document, number = example_of(cu_examples, indices[i])
        _pairs_of_document(sentences, documents, document, room, seed, epoch, number, pairs[i])
    return pairs
