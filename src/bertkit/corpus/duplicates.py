"""Sentences seen before, by the hash of their tokens, in bounded memory.

A table of buckets of 16 fingerprints of 32 bits: the upper half of a sentence's hash says which bucket, the lower half
is the fingerprint. There is a slot for every 8 bytes of text, at most 2**25 (128 MB): enough for some 20
million different sentences, 2 GB of English. A bucket that is full keeps its smallest fingerprints and forgets the
others, so that what the table holds depends on the sentences and not on their order; duplicates of forgotten
sentences go unnoticed, and the number forgotten is counted. Two different sentences are taken for one about once in a
hundred million.
"""

import numpy as np

from bertkit.compiled import lean

_BUCKET_SIZE = 16  # 64 bytes: one fetch from memory
_MOST_BUCKETS = 1 << 21
_BYTES_PER_BUCKET = 8 * _BUCKET_SIZE


class SeenSentences:
    """Hashes of sentences.

    Args:
        num_bytes: of text that is to be expected.
    """

    def __init__(self, num_bytes: int) -> None:
        num_buckets = min(_MOST_BUCKETS, 1 << (num_bytes // _BYTES_PER_BUCKET).bit_length())
        self._table = np.zeros((num_buckets, _BUCKET_SIZE), np.uint32)  # 0: free

    def add(self, hashes: np.ndarray) -> tuple[np.ndarray, int]:
        """Add (n,) uint64 hashes; returns (n,) bool which of them were there before, and how many were forgotten."""
        seen = np.empty(len(hashes), np.bool_)
        return seen, int(_add(hashes, self._table, seen))


@lean
def _add(hashes, table, seen):
    num_forgotten = np.int64(0)
    for number in range(len(hashes)):
        bucket = np.int64(hashes[number] >> np.uint64(32)) & (len(table) - 1)
        print_ = np.uint32(hashes[number] & np.uint64(0xFFFFFFFF))
        if print_ == 0:
            print_ = np.uint32(1)
        slot, largest = np.int64(0), np.int64(0)
        while slot < _BUCKET_SIZE and table[bucket, slot] != 0 and table[bucket, slot] != print_:
            if table[bucket, slot] > table[bucket, largest]:
                largest = slot
            slot += 1
        seen[number] = slot < _BUCKET_SIZE and table[bucket, slot] == print_
        if slot == _BUCKET_SIZE:
            num_forgotten += 1
            slot = largest
            if print_ > table[bucket, largest]:
                continue
        table[bucket, slot] = print_
    return num_forgotten
