"""XXH64 of a file, as ``xxhsum -H1`` prints it: tells whether a file is another, at the speed of reading it.

The algorithm is Yann Collet's (xxHash, doc/xxhash_spec.md, section "XXH64 algorithm description"), with seed 0. It is
no protection against someone who makes two files of the same hash on purpose.
"""

from typing import BinaryIO

import numpy as np

from bertkit.compiled import lean, lean_inline

_BYTES_AT_A_TIME = 1 << 20  # a multiple of a stripe's 32
_PRIMES = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
_P1, _P2 = (np.uint64(prime) for prime in _PRIMES[:2])
_MASK = (1 << 64) - 1


def xxh64(file: BinaryIO) -> str:
    """The hash of all that is left to be read, as 16 hexadecimal digits."""
    p1, p2, p3, p4, p5 = _PRIMES
    lanes = np.array([(p1 + p2) & _MASK, p2, 0, -p1 & _MASK], np.uint64)
    buffer = np.empty(_BYTES_AT_A_TIME, np.uint8)
    num_bytes, rest = 0, b""
    while not rest and (size := file.readinto(buffer)):  # type: ignore (every binary file has it)
        num_bytes += size
        _add_stripes(buffer[: size // 32 * 32].view(np.uint64), lanes)
        rest = buffer[size // 32 * 32 : size].tobytes()
    if num_bytes < 32:
        value = p5
    else:
        value = sum(_rotated(int(lane), bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ _round(0, int(lane))) * p1 + p4) & _MASK
    value = (value + num_bytes) & _MASK
    while len(rest) >= 8:
        value = _rotated(value ^ _round(0, int.from_bytes(rest[:8], "little")), 27) * p1 + p4 & _MASK
        rest = rest[8:]
    if len(rest) >= 4:
        value = _rotated(value ^ int.from_bytes(rest[:4], "little") * p1 & _MASK, 23) * p2 + p3 & _MASK
        rest = rest[4:]
    for byte in rest:
        value = _rotated(value ^ byte * p5 & _MASK, 11) * p1 & _MASK
    value = (value ^ value >> 33) * p2 & _MASK
    value = (value ^ value >> 29) * p3 & _MASK
    return f"{value ^ value >> 32:016x}"


def _round(lane: int, value: int) -> int:
    return _rotated(lane + value * _PRIMES[1] & _MASK, 31) * _PRIMES[0] & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


@lean_inline
def _compiled_round(lane, value):
    lane += value * _P2
    return (lane << np.uint64(31) | lane >> np.uint64(33)) * _P1


@lean
def _add_stripes(values, lanes):
    """Four values a stripe, one to each lane."""
    one, two, three, four = lanes[0], lanes[1], lanes[2], lanes[3]
    for at in range(0, len(values), 4):
        one, two = _compiled_round(one, values[at]), _compiled_round(two, values[at + 1])
        three, four = _compiled_round(three, values[at + 2]), _compiled_round(four, values[at + 3])
    lanes[0], lanes[1], lanes[2], lanes[3] = one, two, three, four
