"""Postings: for each word the texts that contain it, with counts, as arrays; BM25 over them, compiled."""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np

from bertkit.compiled import lean
from bertkit.files import whole_folder, write_json

K1, B = 1.2, 0.75
"""BM25 parameters k1 (saturation of repeated words) and b (discount of long texts) (Robertson & Zaragoza 2009)."""
_CHECKSUMS = "checksums.json"


@dataclass(frozen=True, eq=False)
class Postings:
    """The words of some texts, sorted by word. Rows are texts in the order of their numbers."""

    numbers: np.ndarray  # (num_texts,) int64, ascending
    lengths: np.ndarray  # (num_texts,) int32, words of each text
    offsets: np.ndarray  # (num_words + 1,) int64, the first posting of each word id
    rows: np.ndarray  # (num_postings,) int32, ascending for each word
    counts: np.ndarray  # (num_postings,) uint16, at most 65,535

    @classmethod
    def of_bags(cls, bags: Iterable[tuple[int, int, bytes, bytes]]) -> Self:
        """From (number, length, uint32 word ids, uint16 counts) of each text, in the order of the numbers."""
        numbers, lengths, ids, counts = tuple(zip(*bags, strict=True)) or ((), (), (), ())
        sizes = np.array([len(part) // 4 for part in ids], np.int64)
        all_ids = np.frombuffer(b"".join(ids), np.uint32)
        all_counts = np.frombuffer(b"".join(counts), np.uint16)
        num_words = int(all_ids.max(initial=0)) + 1
        offsets = np.concatenate([[0], np.cumsum(np.bincount(all_ids, minlength=num_words))]).astype(np.int64)
        rows, sorted_counts = np.empty(len(all_ids), np.int32), np.empty(len(all_ids), np.uint16)
        _sort_by_word(all_ids, all_counts, sizes, offsets[:-1].copy(), rows, sorted_counts)
        return cls(np.array(numbers, np.int64), np.array(lengths, np.int32), offsets, rows, sorted_counts)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """From a folder of `save`, mapped into memory."""
        return cls(*(np.load(folder / f"{one.name}.npy", mmap_mode="r") for one in fields(cls)))

    def save(self, folder: Path) -> None:
        """Write the arrays to a folder, atomically."""
        with whole_folder(folder, overwrite=True) as temporary:
            for one in fields(self):
                np.save(temporary / f"{one.name}.npy", getattr(self, one.name))
            write_json(temporary / _CHECKSUMS, {name: _checksum(temporary / name) for name in _names()})

    @staticmethod
    def is_whole(folder: Path) -> bool:
        """Whether the files in a folder of `save` are undamaged."""
        try:
            checksums = json.loads((folder / _CHECKSUMS).read_bytes())
            return all(_checksum(folder / name) == checksums[name] for name in _names())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def count(self, word: int, is_live: np.ndarray | None) -> int:
        """The number of live texts that contain a word; of all texts if ``is_live`` is None."""
        if word >= len(self.offsets) - 1:
            return 0
        start, end = self.offsets[word : word + 2]
        return int(end - start) if is_live is None else int(np.count_nonzero(is_live[self.rows[start:end]]))

    def add_scores(self, word: int, weight: float, norms: np.ndarray, scores: np.ndarray) -> None:
        """Add ``weight * count / (count + norm)`` to the score of each text that contains a word."""
        if word < len(self.offsets) - 1:
            start, end = self.offsets[word : word + 2]
            _add_scores(self.rows[start:end], self.counts[start:end], np.float32(weight), norms, scores)


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


def largest(scores: np.ndarray, is_allowed: np.ndarray, k: int) -> np.ndarray:
    """The rows of the ``k`` largest scores above 0 that are allowed; ties in order of rows."""
    rows = np.empty(min(k, len(scores)), np.int64)
    return rows[: _largest(scores, is_allowed, np.empty(len(rows), np.float32), rows)]


@lean
def _sort_by_word(ids, counts, sizes, ends, rows, sorted_counts):
    at = np.int64(0)
    for row in range(len(sizes)):
        for _ in range(sizes[row]):
            word = ids[at]
            rows[ends[word]], sorted_counts[ends[word]] = row, counts[at]
            ends[word] += 1
            at += 1


@lean
def _add_scores(rows, counts, weight, norms, scores):
    for at in range(len(rows)):
        count = np.float32(counts[at])
        scores[rows[at]] += weight * count / (count + norms[rows[at]])


@lean
def _largest(scores, is_allowed, best, rows):
    """Keep the best rows sorted by insertion; returns their number."""
    size = np.int64(0)
    least = np.float32(0)
    for row in range(len(scores)):
        score = scores[row]
        if score > least and is_allowed[row]:
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
