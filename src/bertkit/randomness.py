"""Counter-based random numbers: each depends only on its key and counter, never on previous draws.

Takes: a seed, an epoch, the index of an example.
Gives: a key; random numbers of a key by their counter; a random permutation of any number of things; inside and
outside of compiled functions.
May import: compiled.

Masks, pairs and order from these numbers are the same for any number of workers and ranks, and a run can resume at any
position. The numbers are those of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators", figure 16), whose n-th output is a function of the key and n.
"""

import numpy as np

from bertkit.compiled import compiled

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd
_MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled
def random_bits(key, counter):
    """The uint64 of a key and a counter."""
    z = np.uint64(key) + (np.uint64(counter) + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX_A
    z = (z ^ (z >> np.uint64(27))) * _MIX_B
    return z ^ (z >> np.uint64(31))


@compiled
def key_of(seed, epoch, index):
    """The uint64 key of an example in an epoch."""
    return random_bits(random_bits(random_bits(np.uint64(0), seed), epoch), index)


@compiled
def uniform(key, counter):
    """A float64 of at least 0 and below 1."""
    return np.float64(random_bits(key, counter) >> np.uint64(11)) * (1.0 / (1 << 53))


@compiled
def below(key, counter, limit):
    """An int64 of at least 0 and below ``limit``, which is at most 2**32: 32 bits times the limit (Lemire 2019,
    without his correction: probabilities differ by at most a factor of one in 2**32 / limit)."""
    return np.int64(((random_bits(key, counter) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


# --- order: a permutation computed entry by entry, without a list ----------------------------------------

_ROUNDS = 6
_ORDER = 0x0D0E  # distinguishes the key of an order from the keys of its items


@compiled
def in_random_order(indices, number, seed, epoch):
    """(n,) int64: the entries at ``indices``, (n,) int64, of an epoch's random permutation of 0 to ``number`` - 1.

    A pure function of seed and epoch: a Feistel network of six rounds over the smallest square of a power of two that
    holds the number, walked until it lands inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    key = key_of(seed ^ _ORDER, epoch, number)
    values = np.empty(len(indices), np.int64)
    for i in range(len(indices)):
        values[i] = _shuffled(indices[i], number, key)
    return values


@compiled
def _shuffled(index, number, key):
    half_bits = 1
    while (1 << (2 * half_bits)) < number:
        half_bits += 1
    mask = (1 << half_bits) - 1
    while True:
        left, right = index >> half_bits, index & mask
        for turn in range(_ROUNDS):
            drawn = np.int64(random_bits(key, (turn << half_bits) + right) & np.uint64(mask))
            left, right = right, left ^ drawn
        index = (left << half_bits) + right
        if index < number:
            return index
