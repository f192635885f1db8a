"""Vector cache on disk: each text's vector is computed once.

A folder holds parts: npy files of rows (hash of the text, vector), each named by the hash of its rows. A part is
written atomically and never changed; one that does not match its name is computed again. Several processes may
use a folder at once: at worst, both compute the same vectors.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bertkit.errors import UsageError
from bertkit.files.whole_files import whole_file

_HASH_BYTES = 16


def kept_scores(
    folder: Path, pairs: Sequence[tuple[str, str]], score: Callable[[list[str], list[str]], np.ndarray]
) -> np.ndarray:
    """As `kept_vectors`, for scores (N,) float32 of pairs; ``score`` is called with both sides of all missing pairs."""
    keys = [f"{len(query)} {query}{text}" for query, text in pairs]  # different for different pairs
    by_key = dict(zip(keys, pairs, strict=True))

    def compute(missing: list[str]) -> Iterator[np.ndarray]:
        queries, texts = zip(*(by_key[key] for key in missing), strict=True)
        yield score(list(queries), list(texts))[:, None]

    return kept_vectors(folder, keys, compute)[:, 0]


def kept_vectors(
    folder: Path, texts: Sequence[str], compute: Callable[[list[str]], Iterator[np.ndarray]]
) -> np.ndarray:
    """Read the vectors of texts from the cache; missing vectors are computed and appended part by part.

    Args:
        folder: for vectors of one model with one set of options; created if missing.
        texts: N of them, at least one.
        compute: yields (n, E) float32 arrays for consecutive texts; called once with all missing texts, if any.

    Returns:
        (N, E) float32.

    Raises:
        UsageError: a file in place of the folder or of one of its parents.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(path for path in (folder, *folder.parents) if path.exists())
        raise UsageError(f"cache={str(file)!r} is a file: expected a folder, or a new name") from None
    keys = [_hash(text) for text in texts]
    parts = list(_whole_parts(folder))
    rows_by_key = {key: (part, row) for part, rows in enumerate(parts) for row, key in enumerate(_keys(rows))}
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in rows_by_key}
    if missing:
        waiting = iter(missing)
        for vectors in compute(list(missing.values())):
            new = [next(waiting) for _ in vectors]
            rows_by_key |= {key: (len(parts), row) for row, key in enumerate(new)}
            parts.append(_keep(folder, new, vectors))
    vectors_of_texts = np.empty((len(texts), parts[-1]["vector"].shape[1]), np.float32)
    part_of, row_of = np.array([rows_by_key[key] for key in keys]).T
    for part in np.unique(part_of):
        (here,) = np.nonzero(part_of == part)
        vectors_of_texts[here] = parts[part]["vector"][row_of[here]]
    return vectors_of_texts


def _keep(folder: Path, keys: list[bytes], vectors: np.ndarray) -> np.ndarray:
    """Write a part; returns its rows."""
    rows = np.empty(len(keys), [("text", f"V{_HASH_BYTES}"), ("vector", "<f4", vectors.shape[1:])])
    rows["text"], rows["vector"] = np.frombuffer(b"".join(keys), f"V{_HASH_BYTES}"), vectors
    with whole_file(folder / f"{_name(rows)}.npy") as temporary, temporary.open("wb") as file:
        np.save(file, rows)
    return rows


def _whole_parts(folder: Path) -> Iterator[np.ndarray]:
    """The rows of every part, mapped into memory; damaged ones are deleted."""
    for path in sorted(folder.glob("[0-9a-f]" * (2 * _HASH_BYTES) + ".npy")):
        try:
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception:  # a damaged header can make numpy raise anything
            rows = None
        if rows is not None and _name(rows) == path.stem:
            yield rows
        else:
            path.unlink(missing_ok=True)


def _name(rows: np.ndarray) -> str:
    digest = hashlib.blake2b(f"{rows.dtype.descr} {rows.shape}".encode(), digest_size=_HASH_BYTES)
    digest.update(rows.view(np.uint8).data)
    return digest.hexdigest()


def _keys(rows: np.ndarray) -> list[bytes]:
    joined = rows["text"].tobytes()
    return [joined[start : start + _HASH_BYTES] for start in range(0, len(joined), _HASH_BYTES)]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
