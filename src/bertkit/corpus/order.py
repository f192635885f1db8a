"""A random order of any number of things, without making a list of it.

The order is a pure function of seed and epoch: any position of it is found at once, by any worker, and nothing has to
be kept or skipped to go on in the middle. It is a Feistel network of six rounds over the smallest square of a power of
two that holds the number, walked until it lands inside (Black and Rogaway 2002, "Ciphers with arbitrary finite
domains").
"""

import numpy as np

from bertkit.compiled import compiled
from bertkit.randomness import key_of, random_bits

_ROUNDS = 6
_ORDER = 0x0D0E  # tells the key of an order from those of the things themselves


@compiled
def in_random_order(places, number, seed, epoch):
    """(n,) int64: what stands at ``places``, (n,) int64, of an epoch's random order of 0 to ``number`` - 1."""
    key = key_of(seed ^ _ORDER, epoch, number)
    found = np.empty(len(places), np.int64)
    for i in range(len(places)):
        found[i] = _shuffled(places[i], number, key)
    return found


@compiled
def _shuffled(place, number, key):
    half_bits = 1
    while (1 << (2 * half_bits)) < number:
        half_bits += 1
    mask = (1 << half_bits) - 1
    while True:
        left, right = place >> half_bits, place & mask
        for turn in range(_ROUNDS):
            drawn = np.int64(random_bits(key, (turn << half_bits) + right) & np.uint64(mask))
            left, right = right, left ^ drawn
        place = (left << half_bits) + right
        if place < number:
            return place
