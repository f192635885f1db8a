"""Checksum of a record without its vector."""

import zlib


def record_checksum(*parts: str | int) -> int:
    """CRC-32 of the columns of a record, without its number."""
    return zlib.crc32("\0".join(map(str, parts)).encode("utf-8"))
