"""The word vectors of a spaCy pipeline, such as ``en_core_web_md``: read from its files, without spaCy or any pickle.

``vocab/vectors`` is an array of numpy, ``vocab/key2row`` a msgpack map from the hash of a word to its row, and
``vocab/strings.json`` the spellings. The hash is MurmurHash2, the 64-bit version A, of the UTF-8 bytes with seed 1.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bertkit.compiled import lean
from bertkit.errors import DataError
from bertkit.files.json_files import read_json
from bertkit.words.finite import row_not_finite
from bertkit.words.word_files import WordVectors

_INTEGERS = {  # first byte -> format of the number after it
    0xCC: ">u1", 0xCD: ">u2", 0xCE: ">u4", 0xCF: ">u8", 0xD0: ">i1", 0xD1: ">i2", 0xD2: ">i4", 0xD3: ">i8",
}  # fmt: skip


def spacy_vocabulary(folder: Path) -> Path | None:
    """The ``vocab`` folder of a pipeline, or of an installed pipeline package; None without one."""
    for candidate in (folder, *(path for path in sorted(folder.glob("*")) if path.is_dir())):
        if (candidate / "vocab" / "key2row").is_file():
            return candidate / "vocab"
    return folder if (folder / "key2row").is_file() else None


def read_spacy(vocabulary: Path) -> WordVectors:
    """The words and vectors of the ``vocab`` folder of a pipeline.

    Raises:
        DataError: files that are missing or are not what spaCy writes, vectors of character n-grams (floret), or no
            words.
    """
    mode = (read_json(vocabulary / "vectors.cfg") or {}).get("mode", "default")
    if mode != "default":
        raise DataError(f"{vocabulary} has vectors in the mode {mode!r}: expected a row for each word (mode 'default')")
    try:
        vectors = np.load(vocabulary / "vectors", mmap_mode="r", allow_pickle=False)
        strings = json.loads((vocabulary / "strings.json").read_text(encoding="utf-8"))
        keys = dict(_integer_map((vocabulary / "key2row").read_bytes()))
    except (OSError, ValueError, IndexError) as error:
        raise DataError(
            f"{vocabulary} cannot be read as the vectors of a spaCy pipeline ({error}): expected the files vectors, "
            "key2row and strings.json"
        ) from None
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        raise DataError(f"{vocabulary / 'vectors'} is {vectors.dtype} of shape {vectors.shape}: expected (rows, width)")
    strings = list(dict.fromkeys(one for one in strings if isinstance(one, str) and one))
    encoded = [one.encode("utf-8", "surrogatepass") for one in strings]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    hashes = np.empty(len(encoded), np.uint64)
    murmur_hashes(np.frombuffer(b"".join(encoded) or b"\0", np.uint8), ends, hashes)
    rows = [keys.get(key, -1) for key in hashes.tolist()]
    words = [word for word, row in zip(strings, rows, strict=True) if row >= 0]
    chosen = np.array([row for row in rows if row >= 0], np.int32)
    if not words:
        raise DataError(
            f"{vocabulary} holds no word that has a vector: a pipeline of the size sm comes without vectors"
        )
    if chosen.max() >= len(vectors):
        raise DataError(f"{vocabulary / 'key2row'} names row {chosen.max()} of {len(vectors)} vectors: copy it again")
    vectors = np.ascontiguousarray(vectors, np.float32)
    if (row := row_not_finite(vectors)) is not None:
        raise DataError(f"{vocabulary / 'vectors'}, row {row}: a number is NaN or infinite; remove the word")
    return WordVectors(words, vectors, chosen)


def _integer_map(content: bytes) -> Iterator[tuple[int, int]]:
    """The pairs of a msgpack map of integers."""
    first = content[0]
    if 0x80 <= first <= 0x8F:
        number, at = first & 0x0F, 1
    elif first in (0xDE, 0xDF):
        size = 2 if first == 0xDE else 4
        number, at = int.from_bytes(content[1 : 1 + size], "big"), 1 + size
    else:
        raise ValueError(f"key2row begins with byte {first}, which is no map")
    for _ in range(number):
        key, at = _integer(content, at)
        value, at = _integer(content, at)
        yield key, value


def _integer(content: bytes, at: int) -> tuple[int, int]:
    first = content[at]
    if first <= 0x7F:
        return first, at + 1
    if first >= 0xE0:
        return first - 256, at + 1
    kind = _INTEGERS.get(first)
    if kind is None:
        raise ValueError(f"key2row has byte {first} at {at}, which begins no whole number")
    end = at + 1 + np.dtype(kind).itemsize
    part = content[at + 1 : end]
    if len(part) != end - at - 1:
        raise ValueError("key2row ends within a number")
    return int.from_bytes(part, "big", signed=kind[1] == "i"), end


@lean
def murmur_hashes(data, ends, hashes):
    """MurmurHash2 64A with seed 1 (Appleby 2008) of strings that lie end to end.

    Args:
        data: (num_bytes,) uint8.
        ends: (n + 1,) int64, first byte of each string and the end.
        hashes: (n,) uint64, is written to.
    """
    factor, shift = np.uint64(0xC6A4A7935BD1E995), np.uint64(47)
    for number in range(len(ends) - 1):
        start, size = ends[number], ends[number + 1] - ends[number]
        state = np.uint64(1) ^ (np.uint64(size) * factor)
        for block in range(size // 8):
            value = np.uint64(0)
            for byte in range(8):
                value |= np.uint64(data[start + 8 * block + byte]) << np.uint64(8 * byte)
            value *= factor
            value ^= value >> shift
            value *= factor
            state ^= value
            state *= factor
        rest = size % 8
        if rest:
            for byte in range(rest):
                state ^= np.uint64(data[start + size - rest + byte]) << np.uint64(8 * byte)
            state *= factor
        state ^= state >> shift
        state *= factor
        state ^= state >> shift
        hashes[number] = state
