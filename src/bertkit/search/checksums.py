"""Checksum of a record without its vector."""

import zlib


def record_checksum(id: str, document_id: str, start: int, end: int, text: str, metadata: str) -> int:
    """CRC-32 of the parts of a record; ``metadata`` as JSON."""
    return zlib.crc32("\0".join((id, document_id, str(start), str(end), metadata, text)).encode("utf-8"))
