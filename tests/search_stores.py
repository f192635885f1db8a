"""Stores that the tests of the interface run on, and records for them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bertkit.search import Identity, Record, VectorStore

DIMENSIONS = 21
IDENTITY = Identity("0123456789abcdef", DIMENSIONS, "cosine", "query: ", "passage: ", "mean", "float32", "a-model")
WORDS = "ash beech cedar elm fir gum hazel ivy juniper larch maple oak pine rowan spruce teak walnut yew".split()


def vector_of(text: str, dimensions: int = DIMENSIONS) -> np.ndarray:
    """A vector that depends on the text alone, as an encoder's."""
    seed = np.frombuffer(text.encode() or b"\0", np.uint8).astype(np.uint32)
    return np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)


def embed(texts: list[str]) -> np.ndarray:
    return np.stack([vector_of(text) for text in texts])


def record(number: int, text: str | None = None, **metadata: object) -> Record:
    text = text if text is not None else f"{WORDS[number % len(WORDS)]} {WORDS[number * 7 % len(WORDS)]} {number} é"
    kept = {"number": number, "half": number / 2, "even": number % 2 == 0, "tree": WORDS[number % len(WORDS)]}
    return Record(
        f"r{number}", text, vector_of(text), f"d{number // 5}", 10 * number, 10 * number + len(text), kept | metadata
    )


def records(number: int, first: int = 0) -> list[Record]:
    return [record(one) for one in range(first, first + number)]


Make = Callable[[Path, Identity], VectorStore]


def scanned_in_float32(folder: Path, identity: Identity) -> VectorStore:
    return VectorStore.create(folder, identity, scan="float32")


def scanned_in_1_bit(folder: Path, identity: Identity) -> VectorStore:
    return VectorStore.create(folder, identity, scan="1-bit")


STORES: dict[str, Make] = {
    "embedded": VectorStore.create,
    "float32": scanned_in_float32,
    "1-bit": scanned_in_1_bit,  # exact up to a thousand records
}


def expected_ids(rows: Sequence[Record], query: np.ndarray, k: int, similarity: str = "cosine") -> list[str]:
    """Ids by brute force in float64."""
    vectors = np.stack([row.vector for row in rows]).astype(np.float64)
    scores = vectors @ query.astype(np.float64)
    if similarity == "cosine":
        scores /= np.linalg.norm(vectors, axis=1)
    return [rows[index].id for index in np.argsort(-scores, kind="stable")[:k]]


def same(one: Record, other: Record) -> bool:
    def parts(each: Record) -> tuple:
        return each.id, each.text, each.document_id, each.start, each.end, dict(each.metadata), each.lines

    unit = [each.vector / np.linalg.norm(each.vector) for each in (one, other)]
    return parts(one) == parts(other) and np.allclose(*unit, atol=1e-6)


def flip_byte(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))
