"""Pairs for next sentence prediction, by the algorithm of BERT (google-research/bert, create_pretraining_data.py).

A document's sentences are gathered until they fill a sequence. The gathered ones are split after a random sentence: the
first part is A; B is either the rest (label 0), or sentences from a random position in another document (label 1), and
then the rest is put back and used again. A single gathered sentence cannot be split and always gets a random B, so
more than half of the pairs are random. One document in ten has a random shorter target length. Pairs that are too long
lose tokens one by one, the longer text first, from its front or its back. Generating a pair takes a pass over its
document from the start, a few nanoseconds per sentence.

With ``balanced`` exactly half of the pairs are random: a pair is random whenever random ones are behind, and a single
sentence is split inside instead.
"""

from typing import NamedTuple

import numpy as np

from bertkit.compiled import compiled
from bertkit.corpus.shards import TokenShard
from bertkit.errors import DataError, UsageError
from bertkit.objectives.sequences import Sequences, Source, SpecialIds, example_of
from bertkit.randomness import below, key_of, random_bits, uniform


class _Rules(NamedTuple):
    room: int  # tokens of A and B together
    short_prob: float  # share of documents with a random shorter target length
    balanced: bool
    seed: int


SINGLE_SENTENCES = (
    "needs documents of two sentences or more, and every document has one: give whole documents, one sentence a line "
    "or running text, or train without it"
)
PAIR = 5  # start and length of A among the tokens, start and length of B, label
SHORT_PROB = 0.1  # as published
_TRIES = 10  # to find another document than A's


class SentencePairs(Source):
    """Source of the sentence pairs of a corpus.

    Args:
        short_prob: share of documents with a random shorter target length (``short_seq_prob``).
        balanced: exactly half of the pairs random.

    Raises:
        UsageError: ``max_seqlen`` below 5.
        DataError: fewer than two documents, or no document of two sentences.
    """

    def __init__(
        self,
        shard: TokenShard,
        special: SpecialIds,
        max_seqlen: int,
        seed: int,
        *,
        short_prob: float = SHORT_PROB,
        balanced: bool = False,
    ) -> None:
        if max_seqlen < 5:
            raise UsageError(f"max_seqlen={max_seqlen}: expected at least 5, for [CLS] A [SEP] B [SEP]")
        num_documents = len(shard.documents) - 1
        if num_documents < 2:
            raise DataError(
                "next sentence prediction takes random sentences from another document, and there is "
                f"{num_documents}: give more files, or one sentence a line and blank lines between documents, or train "
                "without it"
            )
        if np.diff(shard.documents).max() < 2:
            raise DataError(f"next sentence prediction {SINGLE_SENTENCES}")
        self.tokens, self.sentences, self.documents = shard.tokens, shard.sentences, shard.documents
        self.special = special
        self.rules = _Rules(max_seqlen - 3, short_prob, balanced, seed)

    def random_share(self, epoch: int) -> float:
        """The share of pairs whose B is random."""
        cu_examples, _, num_random = self.counts(epoch)
        return int(num_random) / int(cu_examples[-1])

    def take(self, epoch: int, indices: np.ndarray) -> Sequences:
        """The pairs of (B,) int64 ``indices``."""
        cu_examples, balances, _ = self.counts(epoch)
        pairs = _pairs(self.sentences, self.documents, cu_examples, balances, self.rules, epoch, indices)
        return joined_pairs(self.tokens, self.special, pairs)

    def count(self, epoch: int) -> tuple[np.ndarray, ...]:
        """Also (D + 1,) of random minus consecutive pairs, and the number of random pairs."""
        return _count(self.sentences, self.documents, self.rules, epoch)


@compiled
def _pairs_of_document(sentences, documents, document, balance, rules, epoch, wanted, pair):
    """Generate the pairs of a document up to number ``wanted``, whose row is written to ``pair``.

    Returns the number of pairs, and the balance after them: random minus consecutive pairs.
    """
    key = key_of(rules.seed, epoch, document)
    drawn = 1
    target = rules.room
    if uniform(key, 0) < rules.short_prob:
        target = 2 + below(key, 1, rules.room - 1)
        drawn = 2
    first, end = documents[document], documents[document + 1]
    start = sentence = first
    number = 0
    while sentence < end:
        sentence += 1
        num_tokens = sentences[sentence] - sentences[start]
        if sentence < end and num_tokens < target:
            continue
        # The gathered sentences are start to sentence; A ends after ``split``.
        split = sentence
        if sentence - start >= 2:
            split = start + 1 + below(key, drawn, sentence - start - 1)
            drawn += 1
        a_start, a_end, b_start, b_end = sentences[start], sentences[split], sentences[split], sentences[sentence]
        is_random = False
        if rules.balanced:
            is_random = balance < 0 or (balance == 0 and uniform(key, drawn) < 0.5)
            drawn += 1
            if not is_random and split == sentence:
                if num_tokens >= 2:
                    a_end = b_start = a_start + 1 + below(key, drawn, num_tokens - 1)
                    drawn += 1
                else:
                    is_random = True
        elif split == sentence:
            is_random = True
        else:
            is_random = uniform(key, drawn) < 0.5
            drawn += 1
        if is_random:
            other = document
            for _ in range(_TRIES):
                other = below(key, drawn, len(documents) - 1)
                drawn += 1
                if other != document:
                    break
            begin = documents[other] + below(key, drawn, documents[other + 1] - documents[other])
            drawn += 1
            b_start = b_end = sentences[begin]
            while begin < documents[other + 1]:
                begin += 1
                b_end = sentences[begin]
                if b_end - b_start >= target - (a_end - a_start):
                    break
            sentence = split  # the remaining gathered sentences are used again
        balance += 1 if is_random else -1
        if number == wanted:
            set_pair(pair, a_start, a_end, b_start, b_end, is_random, rules.room, random_bits(key, -1 - number))
            return number + 1, balance
        number += 1
        start = sentence
    return number, balance


@compiled
def set_pair(pair, a_start, a_end, b_start, b_end, label, room, key):
    """Write the row of a pair, which loses tokens by the random numbers of a key until it has ``room`` tokens."""
    num_cut = 0
    while (a_end - a_start) + (b_end - b_start) > room:
        from_front = uniform(key, num_cut) < 0.5
        num_cut += 1
        if a_end - a_start > b_end - b_start:
            a_start, a_end = (a_start + 1, a_end) if from_front else (a_start, a_end - 1)
        else:
            b_start, b_end = (b_start + 1, b_end) if from_front else (b_start, b_end - 1)
    pair[0], pair[1], pair[2], pair[3], pair[4] = a_start, a_end - a_start, b_start, b_end - b_start, label


@compiled
def _count(sentences, documents, rules, epoch):
    cu_examples, balances = np.zeros(len(documents), np.int64), np.zeros(len(documents), np.int64)
    pair = np.empty(PAIR, np.int64)
    for document in range(len(documents) - 1):
        number, balance = _pairs_of_document(sentences, documents, document, balances[document], rules, epoch, -1, pair)
        cu_examples[document + 1] = cu_examples[document] + number
        balances[document + 1] = balance
    num_random = (cu_examples[-1] + balances[-1]) // 2
    return cu_examples, balances, num_random


@compiled
def _pairs(sentences, documents, cu_examples, balances, rules, epoch, indices):
    pairs = np.empty((len(indices), PAIR), np.int64)
    for i in range(len(indices)):
        document, number = example_of(cu_examples, indices[i])
        _pairs_of_document(sentences, documents, document, balances[document], rules, epoch, number, pairs[i])
    return pairs


def joined_pairs(tokens: np.ndarray, special: SpecialIds, pairs: np.ndarray) -> Sequences:
    """Sequences [CLS] A [SEP] B [SEP], of (B, 5) start and length of A among the tokens, those of B, and labels."""
    cu_seqlens = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum(pairs[:, 1] + pairs[:, 3] + 3, out=cu_seqlens[1:])
    input_ids, token_type_ids = np.empty(cu_seqlens[-1], np.int32), np.empty(cu_seqlens[-1], np.int32)
    _fill(tokens, pairs, cu_seqlens, special, input_ids, token_type_ids)
    return Sequences(input_ids, token_type_ids, cu_seqlens, pairs[:, 4].copy())


@compiled
def _fill(tokens, pairs, cu_seqlens, special, input_ids, token_type_ids):
    for i in range(len(pairs)):
        position = cu_seqlens[i]
        input_ids[position], token_type_ids[position] = special.cls, 0
        position += 1
        for text in range(2):
            start = pairs[i, 2 * text]
            for token in range(start, start + pairs[i, 2 * text + 1]):
                input_ids[position], token_type_ids[position] = tokens[token], text
                position += 1
            input_ids[position], token_type_ids[position] = special.sep, text
            position += 1
