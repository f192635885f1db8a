"""Postings: for each word the texts that contain it, with counts, as arrays; BM25 over them, compiled."""

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike

from bertkit.compiled import is_loaded, lean, soonest
from bertkit.files import whole_folder, write_json
from bertkit.files.disk_space import reserve
from bertkit.search.store.record_rows import batches_of

K1, B = 1.2, 0.75
"""BM25 parameters k1 (saturation of repeated words) and b (discount of long texts) (Robertson & Zaragoza 2009)."""
_CHECKSUMS = "checksums.json"
_TEXTS_AT_ONCE = 4096
_FEW = 1000
"""Number of rows up to which sorting by insertion takes less time than numpy's partition."""

Bag = tuple[int, int, bytes, bytes]
"""Number and length of a text, uint32 ids of its words, and the uint16 count of each."""


@dataclass(frozen=True, eq=False)
class Postings:
    """The words of some texts, sorted by word. Rows are texts in the order of their numbers."""

    numbers: np.ndarray  # (num_texts,) int64, ascending
    lengths: np.ndarray  # (num_texts,) int32, words of each text
    offsets: np.ndarray  # (num_words + 1,) int64, the first posting of each word id
    rows: np.ndarray  # (num_postings,) int32, ascending for each word
    counts: np.ndarray  # (num_postings,) uint16, at most 65,535

    @classmethod
    def of_bags(cls, bags: Callable[[], Iterable[Bag]]) -> Self:
        """From the words of texts, in the order of their numbers.

        Args:
            bags: returns an iterator over the texts; called twice.
        """
        return cls._filled(bags, lambda name, size, dtype: np.empty(size, dtype))

    @classmethod
    def _filled(cls, bags: Callable[[], Iterable[Bag]], empty: Callable[[str, int, DTypeLike], np.ndarray]) -> Self:
        numbers, lengths, num_texts_with = [np.empty(0, np.int64)], [np.empty(0, np.int32)], np.zeros(1, np.int64)
        for texts in batches_of(bags(), _TEXTS_AT_ONCE):
            numbers.append(np.array([number for number, _, _, _ in texts], np.int64))
            lengths.append(np.array([length for _, length, _, _ in texts], np.int32))
            added = np.bincount(_ids(texts), minlength=len(num_texts_with))
            added[: len(num_texts_with)] += num_texts_with
            num_texts_with = added
        offsets = np.concatenate([[0], np.cumsum(num_texts_with)]).astype(np.int64)
        rows, counts = empty("rows", int(offsets[-1]), np.int32), empty("counts", int(offsets[-1]), np.uint16)
        ends, first = offsets[:-1].copy(), 0
        for texts in batches_of(bags(), _TEXTS_AT_ONCE):
            sizes = np.array([len(ids) // 4 for _, _, ids, _ in texts], np.int64)
            text_counts = np.frombuffer(b"".join(counts for _, _, _, counts in texts), np.uint16)
            soonest(_sort_by_word, len(text_counts))(_ids(texts), text_counts, sizes, first, ends, rows, counts)
            first += len(texts)
        return cls(np.concatenate(numbers), np.concatenate(lengths), offsets, rows, counts)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """From a folder of `write`, mapped into memory."""
        return cls(*(np.load(folder / f"{one.name}.npy", mmap_mode="r") for one in fields(cls)))

    @classmethod
    def write(cls, folder: Path, bags: Callable[[], Iterable[Bag]]) -> None:
        """Write the arrays of `of_bags` to a folder, atomically; the postings are sorted in mapped files, not in
        memory.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        with whole_folder(folder, overwrite=True) as temporary:

            def empty(name: str, size: int, dtype: DTypeLike) -> np.ndarray:
                if size == 0:  # cannot be mapped
                    return np.empty(0, dtype)
                path = temporary / f"{name}.npy"
                mapped = open_memmap(path, "w+", dtype, (size,))
                with open(path, "r+b") as file:
                    reserve(file.fileno(), path.stat().st_size)  # nothing is written to the array before
                return mapped

            postings = cls._filled(bags, empty)
            for one in fields(cls):
                values = getattr(postings, one.name)
                if isinstance(values, np.memmap):
                    values.flush()
                else:
                    np.save(temporary / f"{one.name}.npy", values)
            write_json(temporary / _CHECKSUMS, {name: _checksum(temporary / name) for name in _names()})

    @staticmethod
    def is_whole(folder: Path) -> bool:
        """Whether the files in a folder of `write` are undamaged."""
        try:
            checksums = json.loads((folder / _CHECKSUMS).read_bytes())
            return all(_checksum(folder / name) == checksums[name] for name in _names())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def rows_with(self, word: int) -> np.ndarray:
        """(n,) int32, ascending: the rows of the texts that contain a word."""
        return self.rows[slice(*self.offsets[word : word + 2])] if word < len(self.offsets) - 1 else self.rows[:0]

    def count(self, word: int, is_live: np.ndarray | None) -> int:
        """The number of live texts that contain a word; of all texts if ``is_live`` is None."""
        rows = self.rows_with(word)
        return len(rows) if is_live is None else int(np.count_nonzero(is_live[rows]))

    def add_bm25(self, word: int, weight: float, norms: np.ndarray, scores: np.ndarray) -> None:
        """Add ``weight * count / (count + norm)`` to the score of each text that contains a word."""
        if word < len(self.offsets) - 1:
            start, end = self.offsets[word : word + 2]
            rows, counts = self.rows[start:end], self.counts[start:end]
            if is_loaded():
                _add_bm25(rows, counts, np.float32(weight), norms, scores)
            else:  # the same sums; a tenth as fast, without the import
                added = counts.astype(np.float32)
                scores[rows] += np.float32(weight) * added / (added + norms[rows])  # each row once

    def add_products(self, word: int, weight: float, scores: np.ndarray) -> None:
        """Add ``weight * count`` to the score of each text that contains a word."""
        if word < len(self.offsets) - 1:
            start, end = self.offsets[word : word + 2]
            scores[self.rows[start:end]] += np.float32(weight) * self.counts[start:end]  # each row once


def _names() -> list[str]:
    return [f"{one.name}.npy" for one in fields(Postings)]


def _checksum(path: Path) -> int:
    checksum = 0
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            checksum = zlib.crc32(data, checksum)
    return checksum


def norms(lengths: np.ndarray, mean_length: float) -> np.ndarray:
    """(num_texts,) float32: the discount of BM25 for the length of each text."""
    return (K1 * (1 - B + B * lengths / max(mean_length, 1e-9))).astype(np.float32)


def idf(num_texts: int, num_with_word: int) -> float:
    """Inverse document frequency as in Lucene, never negative."""
    return float(np.log1p((num_texts - num_with_word + 0.5) / (num_with_word + 0.5)))


def largest(scores: np.ndarray, k: int) -> np.ndarray:
    """The rows of the ``k`` largest scores above 0; ties in order of rows."""
    if k > _FEW or not is_loaded():
        rows = np.flatnonzero(scores > 0)
        if len(rows) > k:
            rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
        return rows[np.argsort(-scores[rows], kind="stable")[:k]]
    rows = np.empty(min(k, len(scores)), np.int64)
    return rows[: _largest(scores, np.empty(len(rows), np.float32), rows)]


def _ids(texts: list[Bag]) -> np.ndarray:
    return np.frombuffer(b"".join(ids for _, _, ids, _ in texts), np.uint32)


@lean
def _sort_by_word(ids, counts, sizes, first, ends, rows, sorted_counts):
    """Insert the words of texts from row ``first`` on; ``ends`` is the number of postings of earlier words and rows."""
    at = np.int64(0)
    for row in range(len(sizes)):
        for _ in range(sizes[row]):
            word = ids[at]
            rows[ends[word]], sorted_counts[ends[word]] = first + row, counts[at]
            ends[word] += 1
            at += 1


@lean
def _add_bm25(rows, counts, weight, norms, scores):
    for at in range(len(rows)):
        count = np.float32(counts[at])
        scores[rows[at]] += weight * count / (count + norms[rows[at]])


@lean
def _largest(scores, best, rows):
    """Keep the best rows sorted by insertion; returns their number."""
    size = np.int64(0)
    least = np.float32(0)
    for row in range(len(scores)):
        score = scores[row]
        if score > least:
            if size < len(best):
                size += 1
            at = size - 1
            while at > 0 and best[at - 1] < score:
                best[at], rows[at] = best[at - 1], rows[at - 1]
                at -= 1
            best[at], rows[at] = score, row
            if size == len(best):
                least = best[size - 1]
    return size
