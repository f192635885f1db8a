"""Servers of one model over HTTP, each a program `python -m servers.NAME FOLDER PORT PRECISION THREADS`."""

import json


def body_of(texts: list[str], field: str = "inputs") -> bytes:
    """A request for the vectors of texts."""
    return json.dumps({field: texts}).encode()
