"""The files of a shard being written: appended to, and truncated to what is committed when writing resumes."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bertkit.compiled import lean
from bertkit.errors import DataError
from bertkit.files.whole_files import whole_file

_SENTENCES_AT_A_TIME = 1 << 18
_TOKENS_AT_A_TIME = 1 << 22


def open_at(path: Path, size: int) -> BinaryIO:
    """Open a file for appending after its first ``size`` bytes; create it if needed.

    Raises:
        DataError: the file is shorter.
    """
    file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 (the caller closes it)
    if file.seek(0, os.SEEK_END) < size:
        file.close()
        raise DataError(
            f"{path} is damaged: expected at least {size} bytes; delete the folder and write the shard again"
        )
    file.truncate(size)
    file.seek(size)
    return file


def flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


class ShardFiles:
    """tokens.bin, sentences.bin and documents.bin; the last two lack their final number until writing is finished."""

    def __init__(self, folder: Path, dtype: np.dtype, counts: dict[str, int]) -> None:
        """``counts``: committed counts, from ``counts()``."""
        self.num_tokens, self.num_sentences, self.num_documents = (
            counts[name] for name in ("num_tokens", "num_sentences", "num_documents")
        )
        folder.mkdir(exist_ok=True)
        self.folder, self._dtype = folder, dtype
        self._tokens = open_at(folder / "tokens.bin", self.num_tokens * dtype.itemsize)
        self._sentences = open_at(folder / "sentences.bin", self.num_sentences * 8)
        self._documents = open_at(folder / "documents.bin", self.num_documents * 8)

    def counts(self) -> dict[str, int]:
        names = ("num_documents", "num_sentences", "num_tokens")
        return {name: getattr(self, name) for name in names}

    def append(self, tokens: np.ndarray, lengths: np.ndarray, starts_document: np.ndarray) -> None:
        """Append sentences of ``lengths`` tokens; ``starts_document`` marks the first of each document."""
        self._documents.write((self.num_sentences + np.flatnonzero(starts_document)).astype(np.int64).data)
        self._sentences.write((self.num_tokens + np.cumsum(lengths) - lengths).astype(np.int64).data)
        self._tokens.write(np.ascontiguousarray(tokens).data)
        self.num_documents += int(np.count_nonzero(starts_document))
        self.num_sentences += len(lengths)
        self.num_tokens += len(tokens)

    def flush_to_disk(self) -> None:
        for file in (self._tokens, self._sentences, self._documents):
            flush_to_disk(file)

    def sentences(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Committed sentences in groups: their tokens and lengths."""
        for first in range(0, self.num_sentences, _SENTENCES_AT_A_TIME):
            starts = np.fromfile(self.folder / "sentences.bin", np.int64, _SENTENCES_AT_A_TIME + 1, offset=8 * first)
            starts = starts[: self.num_sentences - first]
            if first + len(starts) == self.num_sentences:
                starts = np.append(starts, self.num_tokens)
            yield self._read_tokens(starts[0], starts[-1]), np.diff(starts)

    def finish(self, vocab_size: int, num_threads: int) -> np.ndarray:
        """Write the final numbers and counts.bin, flush all to disk, and return the counts."""
        self._sentences.write(np.int64(self.num_tokens).tobytes())
        self._documents.write(np.int64(self.num_sentences).tobytes())
        self.flush_to_disk()
        counts = np.zeros((num_threads, vocab_size), np.int64)

        def count(thread: int) -> None:
            for first in range(thread * _TOKENS_AT_A_TIME, self.num_tokens, num_threads * _TOKENS_AT_A_TIME):
                _count(self._read_tokens(first, min(first + _TOKENS_AT_A_TIME, self.num_tokens)), counts[thread])

        with ThreadPoolExecutor(num_threads) as pool:
            list(pool.map(count, range(num_threads)))
        total = counts.sum(axis=0)
        with whole_file(self.folder / "counts.bin") as temporary:
            total.tofile(temporary)
        return total

    def close(self) -> None:
        for file in (self._tokens, self._sentences, self._documents):
            file.close()

    def _read_tokens(self, first: int, last: int) -> np.ndarray:
        return np.fromfile(
            self.folder / "tokens.bin", self._dtype, int(last - first), offset=int(first) * self._dtype.itemsize
        )


@lean
def _count(tokens, counts):
    for token in tokens:
        counts[token] += 1
