"""Detect duplicate sentences by the hash of their tokens, in bounded memory.

The table has buckets of 16 fingerprints of 32 bits: the upper half of a sentence's hash selects the bucket, the lower
half is the fingerprint. There is one slot for every 8 bytes of text, at most 2**25 slots (128 MB): enough for about 20
million different sentences, or 2 GB of English. A full bucket keeps its smallest fingerprints, so that the content of
the table does not depend on the order of the sentences. Duplicates of forgotten sentences are not detected; the
number of forgotten sentences is counted. About one sentence in a hundred million is mistaken for a duplicate.
"""

import numpy as np

from bertkit.compiled import lean

_BUCKET_SIZE = 16  # 64 bytes: one fetch from memory
_MOST_BUCKETS = 1 << 21
_BYTES_PER_BUCKET = 8 * _BUCKET_SIZE


class SeenSentences:
    """Set of sentence hashes.

    Args:
        num_bytes: expected amount of text.
    """

    def __init__(self, num_bytes: int) -> None:
        num_buckets = min(_MOST_BUCKETS, 1 << (num_bytes // _BYTES_PER_BUCKET).bit_length())
        self._table = np.zeros((num_buckets, _BUCKET_SIZE), np.uint32)  # 0: free

    def add(self, hashes: np.ndarray) -> tuple[np.ndarray, int]:
        """Add (n,) uint64 hashes; returns (n,) bool, True for those added before, and the number of forgotten ones."""
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
