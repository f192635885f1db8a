"""Write a token shard: files are read in parts, each split and tokenized by one thread, and appended in order.

Every few seconds files are flushed to disk, then the manifest is replaced, which records their valid sizes and where
to continue reading. After an interruption, writing resumes from there and gives the same bytes.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bertkit.compiled import compiled
from bertkit.corpus.documents import Part, Reading, check_readable, read_parts
from bertkit.corpus.duplicates import SeenSentences
from bertkit.corpus.part_tokens import PartTokens, hash_sentences, take_sentences, tokenize_part
from bertkit.corpus.shard_files import ShardFiles, flush_to_disk, open_at
from bertkit.corpus.shard_sources import check_same, find_sources, source_hash, source_of
from bertkit.corpus.shards import (
    FORMAT,
    HELD_OUT,
    MANIFEST,
    TokenShard,
    open_shard,
    read_manifest,
    token_dtype,
    vocabulary_sha256,
)
from bertkit.errors import BertkitError, DataError, UsageError
from bertkit.files.bad_rows import SkippedRow
from bertkit.files.json_files import write_json
from bertkit.files.whole_files import only_writer, remove_unfinished
from bertkit.randomness import key_of, uniform
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.workspaces import num_processors

_SECONDS_BETWEEN_COMMITS = 5.0
_PYTHON_DOCS_BYTES = 2 << 20  # about
_NOTHING = {"num_documents": 0, "num_sentences": 0, "num_tokens": 0}


@dataclass(frozen=True)
class ShardSettings(Reading):
    """Settings of a shard."""

    drop_duplicates: bool = False  # skip sentences with the same tokens as an earlier one
    held_out_share: float = 0.0  # share of the documents, from 0 to below 1, that become a separate shard
    least_held_out: int = 1  # minimum number of held-out documents: the second, the fourth and so on
    seed: int = 0  # seed of the choice of held-out documents

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.held_out_share < 1:
            raise UsageError(f"held_out_share={self.held_out_share}: expected at least 0 and below 1")


def write_shard(
    sources: str | Path | Sequence[str | Path],
    folder: str | Path,
    tokenizer: Tokenizer,
    settings: ShardSettings = ShardSettings(),
    *,
    num_threads: int | None = None,
) -> TokenShard:
    """Write a token shard into a folder, resume an interrupted one, or open a finished one.

    Held-out documents, if any, become another shard, ``folder / "held-out"``. The second document is always held out
    (and the fourth, with ``least_held_out=2``) and the first never, so that neither shard is empty; the others are
    chosen by their number and the seed.

    Args:
        sources: files, folders (all files below them, in order), and "python-docs".
        num_threads: number of tokenizing threads; None: one for each processor. The result is the same for any number.

    Raises:
        DataError: no sentences, or only one; a single document to be split; a source that changed; or a folder with a
            shard of other sources, another vocabulary or other settings.
        UsageError: a folder of other files, or one that another process is writing a shard into.
        DataError, UsageError, DependencyError: as ``find_files`` and ``read_parts``.
    """
    folder = Path(folder)
    paths, left_out = find_sources(sources, settings.column)
    fresh = {
        "format": FORMAT,
        "finished": False,
        "vocabulary_sha256": vocabulary_sha256(tokenizer),
        "vocab_size": len(tokenizer.vocabulary),
        "dtype": token_dtype(tokenizer).name,
        "settings": asdict(settings),
        **_NOTHING,
        "num_bytes": 0,  # bytes of text read
        "num_invalid": 0,  # runs of bytes that were not UTF-8
        "num_set_aside": 0,
        "num_duplicates": 0,
        "num_forgotten": 0,  # sentences whose duplicates are not detected, see duplicates.py
        "num_marked_up": 0,  # documents with HTML or marks of other models
        "sources": [source_of(path) for path in paths],
        "left_out": [str(path) for path in left_out],  # files in the folders with other extensions
        "progress": {
            "source": 0, "position": 0, "line": 1, "document_is_open": False, "is_marked_up": False,
            "set_aside_bytes": 0, HELD_OUT: _NOTHING,
        },
    }  # fmt: skip
    manifest = read_manifest(folder)
    with ExitStack() as stack:
        if manifest is None or not manifest["finished"]:
            stack.enter_context(only_writer(folder))
            remove_unfinished(folder, MANIFEST)
            manifest = read_manifest(folder)  # another process can have finished it
        if manifest is None:
            if any(folder.iterdir()):
                raise UsageError(f"{folder} exists and holds no token shard: choose another folder")
            manifest = fresh
            write_json(folder / MANIFEST, manifest)
        check_same(manifest, fresh, folder)
        if not manifest["finished"]:
            _Writing(folder, tokenizer, settings, paths, manifest, stack).run(num_threads or num_processors())
    return open_shard(folder, tokenizer)


class _Writing:
    """The state of a shard being written. Everything that must survive an interruption is in the manifest."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        settings: ShardSettings,
        paths: list[Path],
        manifest: dict[str, Any],
        stack: ExitStack,
    ) -> None:
        self._folder, self._tokenizer, self._settings, self._paths = folder, tokenizer, settings, paths
        self._manifest, self._progress, self._stack = manifest, manifest["progress"], stack
        dtype = token_dtype(tokenizer)
        self._files = ShardFiles(folder, dtype, manifest)
        stack.callback(self._files.close)
        self._held_out = None
        if settings.held_out_share:
            self._held_out = ShardFiles(folder / HELD_OUT, dtype, self._progress[HELD_OUT])
            stack.callback(self._held_out.close)
        self._set_aside = stack.enter_context(open_at(folder / "set_aside.jsonl", self._progress["set_aside_bytes"]))
        self._seen = SeenSentences(sum(source["size"] or _PYTHON_DOCS_BYTES for source in manifest["sources"]))
        for files in self._all_files():
            for tokens, lengths in files.sentences():
                self._seen.add(hash_sentences(tokens, lengths))

    def run(self, num_threads: int) -> None:
        tokenizing = self._pool(num_threads)
        sizes = [source["size"] for source in self._manifest["sources"]]
        work = partial(tokenize_part, tokenizer=self._tokenizer, dtype=token_dtype(self._tokenizer))
        last_commit = time.monotonic()
        with tqdm(desc="tokenizing", total=sum(sizes), unit="B", unit_scale=True, delay=2, disable=None) as bar:
            bar.update(sum(sizes[: self._progress["source"]]))
            try:
                for part, result in _ahead(self._parts(), partial(tokenizing.submit, work), 4 * num_threads):
                    if part is None:
                        self._finish_source(result)
                        bar.update(sum(sizes[: self._progress["source"]]) - bar.n)
                    else:
                        self._append(part, result)
                        bar.update(len(part.data))
                    if time.monotonic() > last_commit + _SECONDS_BETWEEN_COMMITS:
                        self._commit()
                        last_commit = time.monotonic()
            except BertkitError:  # in a source, which the user may fix
                self._commit()
                raise
        self._finish(num_threads)

    def _pool(self, num_threads: int) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(num_threads)
        self._stack.callback(pool.shutdown, cancel_futures=True)
        return pool

    def _parts(self) -> Iterator[Part | Future]:
        """The remaining parts of each source, and after each source its hash."""
        hashing = self._pool(1)
        position, line = self._progress["position"], self._progress["line"]
        for path in self._paths[self._progress["source"] :]:
            file_hash = hashing.submit(source_hash, path)
            yield from read_parts(path, self._settings, position, line)
            yield file_hash
            position, line = 0, 1

    def _append(self, part: Part, result: PartTokens) -> None:
        manifest, progress = self._manifest, self._progress
        filled = np.flatnonzero(result.lengths)
        was_seen, num_forgotten = self._seen.add(result.hashes[filled])
        chosen = filled[~was_seen] if self._settings.drop_duplicates else filled
        documents = np.cumsum(result.starts_document)  # 0: the document of the previous part
        own = documents[chosen]
        starts_document = np.diff(own, prepend=0 if progress["document_is_open"] else -1) != 0
        self._route(result, chosen, starts_document)
        if len(own) or documents[-1:].any():
            progress["document_is_open"] = len(own) > 0 and bool(own[-1] == documents[-1])
        if len(documents):
            is_counted = progress["is_marked_up"] and 0 in result.marked_up  # the document of the previous part
            manifest["num_marked_up"] += len(result.marked_up) - is_counted
            was_marked_up = progress["is_marked_up"] and documents[-1] == 0
            progress["is_marked_up"] = bool(was_marked_up or documents[-1] in result.marked_up)
        for one in result.set_aside:
            row = {"path": one.path, "line": one.line, "why": one.why.strip(" :"), "text": one.text}
            self._set_aside.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        manifest["num_bytes"] += len(part.data)
        manifest["num_invalid"] += result.num_invalid
        manifest["num_set_aside"] += len(result.set_aside)
        manifest["num_duplicates"] += int(np.count_nonzero(was_seen))
        manifest["num_forgotten"] += num_forgotten
        manifest["sources"][progress["source"]]["layout"] = part.layout
        progress["position"], progress["line"] = part.position, part.line

    def _route(self, result: PartTokens, chosen: np.ndarray, starts_document: np.ndarray) -> None:
        """Append the chosen sentences of a part to the shard, or to the held-out shard."""
        held_out = np.zeros(len(chosen), np.bool_)
        if self._held_out:
            last_document = self._files.num_documents + self._held_out.num_documents - 1
            numbers = last_document + np.cumsum(starts_document)
            settings = self._settings
            _mark_held_out(numbers, settings.seed, settings.held_out_share, settings.least_held_out, held_out)
        for files, own in zip(self._all_files(), (~held_out, held_out), strict=False):
            tokens, sentences = result.tokens, chosen[own]
            if len(sentences) < np.count_nonzero(result.lengths):
                is_chosen = np.zeros(len(result.lengths), np.bool_)
                is_chosen[sentences] = True
                tokens = take_sentences(tokens, result.lengths, is_chosen)
            files.append(tokens, result.lengths[sentences], starts_document[own])

    def _finish_source(self, file_hash: str) -> None:
        number = self._progress["source"]
        source, now = self._manifest["sources"][number], source_of(self._paths[number])
        if any(source[key] != now[key] for key in ("size", "modified_ns")):
            raise DataError(f"{source['path']} changed while it was read: delete {self._folder} and write it again")
        source["sha256"] = file_hash
        self._progress |= {"source": number + 1, "position": 0, "line": 1, "document_is_open": False}

    def _all_files(self) -> list[ShardFiles]:
        return [self._files, self._held_out] if self._held_out else [self._files]

    def _commit(self) -> None:
        for files in self._all_files():
            files.flush_to_disk()
        flush_to_disk(self._set_aside)
        self._progress["set_aside_bytes"] = self._set_aside.tell()
        self._manifest |= self._files.counts()
        if self._held_out:
            self._progress[HELD_OUT] = self._held_out.counts()
        write_json(self._folder / MANIFEST, self._manifest)

    def _check_readable(self, num_sentences: int) -> None:
        """As `check_readable`; the first skipped row may have been written before an interruption."""
        path = self._folder / "set_aside.jsonl"
        with open(path, "rb") as file:
            row = json.loads(file.readline() or "null")
        first = row and f"{SkippedRow(row['path'], row['line'], ': ' + row['why'], '')}; all are listed in {path}"
        num_dropped = self._settings.drop_duplicates * self._manifest["num_duplicates"]
        check_readable(num_sentences + num_dropped, self._manifest["num_set_aside"], first)

    def _finish(self, num_threads: int) -> None:
        self._commit()
        num_documents = sum(files.num_documents for files in self._all_files())
        num_sentences = sum(files.num_sentences for files in self._all_files())
        self._check_readable(num_sentences)
        if num_sentences < 2:
            raise DataError(
                f"the sources hold {('no sentences', 'one sentence in all')[num_sentences]}; expected several, to "
                "train on and to evaluate"
            )
        each = self._settings.least_held_out
        if self._held_out and num_documents < 2 * each:
            raise DataError(
                f"the sources hold {'one document' if num_documents == 1 else f'{num_documents} documents'}, which "
                f"cannot be split into training and held-out text{f' of {each} documents each' if each > 1 else ''}: "
                f"expected {2 * each} or more files, held-out files, or layout='lines', where empty lines separate "
                "documents"
            )
        del self._manifest["progress"]
        self._manifest["finished"] = True
        for files in reversed(self._all_files()):
            entropy = _entropy(files.finish(self._manifest["vocab_size"], num_threads))  # nats
            write_json(files.folder / MANIFEST, self._manifest | files.counts() | {"unigram_entropy": entropy})


def _ahead(
    parts: Iterator[Part | Future], submit: Callable[[Part], Future], number: int
) -> Iterator[tuple[Part | None, Any]]:
    """Each part with its result, in order, while the next ``number`` are processed; other items as (None, item's
    result).

    An error in reading a part is raised after the results of the parts before it.
    """
    waiting: deque[tuple[Part | None, Future]] = deque()
    failure = None
    while failure is None:
        try:
            part = next(parts)
        except (StopIteration, BertkitError) as error:
            failure = error
        else:
            waiting.append((part, submit(part)) if isinstance(part, Part) else (None, part))
        while len(waiting) > (0 if failure else number):
            first, result = waiting.popleft()
            yield first, result.result()
    if isinstance(failure, BertkitError):
        raise failure


@compiled
def _mark_held_out(documents, seed, share, least, held_out):
    for index in range(len(documents)):
        document = documents[index]
        is_drawn = document > 1 and uniform(key_of(seed, 0, document), 0) < share
        held_out[index] = is_drawn or (document % 2 == 1 and document < 2 * least)


def _entropy(counts: np.ndarray) -> float:
    """Entropy of token frequencies, in nats: the loss of predicting each token by its frequency alone."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
