"""Token shards: the token ids of a corpus in a folder, memory-mapped, with the bounds of sentences and documents.

    tokens.bin       uint16 if the vocabulary has at most 65,536 entries, else int32; no special tokens
    sentences.bin    (S + 1,) int64 first token of each sentence, and the number of tokens
    documents.bin    (D + 1,) int64 first sentence of each document, and the number of sentences
    counts.bin       (V,) int64 number of occurrences of each vocabulary entry in tokens.bin
    manifest.json    sources, settings and all counts
    set_aside.jsonl  unreadable rows: file, line, reason, and first characters
    held-out/        another shard, of held-out documents, if requested

Numbers are little-endian. No sentence or document is empty.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DataError
from bertkit.files.formats import check_format
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.wordpiece import WordPiece

FORMAT = 1
MANIFEST = "manifest.json"
HELD_OUT = "held-out"
_NUMBERS_AT_A_TIME = 1 << 18
_KEYS = {
    "format",
    "finished",
    "vocabulary_sha256",
    "dtype",
    "num_tokens",
    "num_sentences",
    "num_documents",
    "num_set_aside",
    "num_invalid",
    "num_duplicates",
    "num_forgotten",
    "num_marked_up",
    "left_out",
    "settings",
    "sources",
}


@dataclass(frozen=True, eq=False)
class TokenShard:
    """The tokens of a corpus; D documents, S sentences, N tokens."""

    tokens: np.ndarray  # (N,) uint16 or int32, without special tokens
    sentences: np.ndarray  # (S + 1,) int64 bounds in tokens, from 0 to N
    documents: np.ndarray  # (D + 1,) int64 bounds in sentences, from 0 to S
    manifest: dict[str, Any]


def open_shard(folder: str | Path, tokenizer: Tokenizer) -> TokenShard:
    """Open the finished shard in a folder; its arrays are memory-mapped.

    Raises:
        DataError: the shard is missing, unfinished, damaged, or made with another vocabulary.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        raise DataError(f"{folder} holds no token shard: there is no {MANIFEST}")
    if not manifest["finished"]:
        raise DataError(f"the token shard in {folder} is unfinished: write it again with the same sources to resume")
    if manifest["vocabulary_sha256"] != vocabulary_sha256(tokenizer):
        raise DataError(
            f"the token shard in {folder} was made with another vocabulary than this one of "
            f"{len(tokenizer.vocabulary)} entries: open it with its own vocabulary, or write a new shard"
        )
    tokens = _map(folder / "tokens.bin", manifest["dtype"], manifest["num_tokens"])
    counts = _map(folder / "counts.bin", "int64", len(tokenizer.vocabulary))
    if not np.array_equal(_counted(folder / "tokens.bin", tokens.dtype, len(counts)), counts):
        raise DataError(
            f"the token shard is damaged: {folder / 'tokens.bin'} does not have the tokens that were written to it; "
            f"delete {folder} and write it again"
        )
    sentences = _map(folder / "sentences.bin", "int64", manifest["num_sentences"] + 1)
    documents = _map(folder / "documents.bin", "int64", manifest["num_documents"] + 1)
    for name, size in (("sentences.bin", len(tokens)), ("documents.bin", len(sentences) - 1)):
        if not _rises(folder / name, size):
            raise DataError(
                f"the token shard is damaged: the bounds in {folder / name} do not increase from 0 to {size}; delete "
                f"{folder} and write it again"
            )
    return TokenShard(tokens, sentences, documents, manifest)


def token_counts(folder: Path, tokenizer: Tokenizer) -> np.ndarray:
    """(V,) int64: how often each vocabulary entry occurs in the shard in a folder.

    Raises:
        DataError: the file is missing or damaged.
    """
    return _map(folder / "counts.bin", "int64", len(tokenizer.vocabulary))


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a shard, finished or not; None if there is none.

    Raises:
        DataError: the file is not a manifest, or has another format.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    manifest: Any = None
    with suppress(ValueError, RecursionError):
        manifest = json.loads(path.read_bytes())
    if isinstance(manifest, dict) and "format" in manifest:
        check_format(manifest["format"], FORMAT, path, "write the shard again in another folder", DataError)
    if not isinstance(manifest, dict) or not manifest.keys() >= _KEYS:
        raise DataError(f"{path} is not the manifest of a token shard: delete the folder or choose another")
    return manifest


def token_dtype(tokenizer: Tokenizer) -> np.dtype:
    """The type of the numbers in tokens.bin."""
    return np.dtype(np.uint16 if len(tokenizer.vocabulary) <= 1 << 16 else np.int32)


def vocabulary_sha256(tokenizer: Tokenizer) -> str:
    """Hash of everything that determines the token ids of a text: entries, normalization, added tokens."""
    engine = tokenizer.engine
    if not isinstance(engine, WordPiece):
        return hashlib.sha256(engine.definition.encode()).hexdigest()
    normalization = engine.normalization
    strip_accents = normalization.lowercase if normalization.strip_accents is None else normalization.strip_accents
    content = [
        engine.vocabulary.tokens,
        engine.vocabulary.special.unk,
        [normalization.lowercase, strip_accents, normalization.split_cjk],
        [asdict(token) for token in engine.added_tokens if not token.special],
        engine.max_characters_per_word,
        engine.num_added,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _rises(path: Path, size: int) -> bool:
    """Whether the bounds in a file start at 0, end at ``size``, and increase strictly.

    Compiled code uses them without checks. They are read in pieces, and not through the memory
    map, so that those of a large shard do not stay in memory.
    """
    before, first = np.int64(-1), 0
    while len(bounds := np.fromfile(path, np.int64, _NUMBERS_AT_A_TIME, offset=8 * first)):
        if bounds[0] <= before or (bounds[1:] <= bounds[:-1]).any() or (first == 0 and bounds[0] != 0):
            return False
        before, first = bounds[-1], first + len(bounds)
    return bool(before == size)


def _counted(path: Path, dtype: np.dtype, vocab_size: int) -> np.ndarray:
    """(V,) how often each entry occurs in a file, read in pieces; (0,) if a number is no entry."""
    counts, first = np.zeros(vocab_size, np.int64), 0
    while len(tokens := np.fromfile(path, dtype, _NUMBERS_AT_A_TIME, offset=dtype.itemsize * first)):
        if tokens.min() < 0 or tokens.max() >= vocab_size:
            return np.zeros(0, np.int64)
        counts += np.bincount(tokens, minlength=vocab_size)
        first += len(tokens)
    return counts


def _map(path: Path, dtype: str, length: int) -> np.ndarray:
    expected = length * np.dtype(dtype).itemsize
    size = path.stat().st_size if path.is_file() else 0
    if size != expected:
        raise DataError(
            f"the token shard is damaged: {path} has {size} bytes, its manifest requires {expected}; delete it and "
            "write "
            "it again"
        )
    return np.memmap(path, dtype, "r").view(np.ndarray)
