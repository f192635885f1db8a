"""Hash of the content of a model folder or a file of word vectors, to detect changes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bertkit.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

_READ = {".json", ".txt", ".model", ".spm", ".metadata", ".safetensors"}  # extensions of all files that are read
_SPACY = {"vectors", "key2row"}


def content_hash(directory: Path) -> str:
    """Hash of every file that may be read when the directory, or the single file, is opened: 32 hexadecimal digits.

    It changes with any weight, vocabulary entry or setting. The files are read in full.

    Raises:
        CheckpointError: no file in it is part of a model.
    """
    if directory.is_file():
        return file_sha256(directory)[:32]
    total = hashlib.sha256()
    files = sorted(path for path in directory.rglob("*") if _is_read(path) and path.is_file())
    if not files:
        raise CheckpointError(f"{directory} holds no model")
    for path in files:
        total.update(f"{path.relative_to(directory).as_posix()}\0{file_sha256(path)}\0".encode())
    return total.hexdigest()[:32]


def _is_read(path: Path) -> bool:
    return path.suffix in _READ or path.name in _SPACY


def file_sha256(path: Path) -> str:
    """SHA-256 of a file: 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def values_sha256(values: np.ndarray | Tensor) -> str:
    """SHA-256 of numbers in float32: 64 hexadecimal digits."""
    numbers = values if isinstance(values, np.ndarray) else values.detach().cpu().float().numpy()
    return hashlib.sha256(np.ascontiguousarray(numbers, np.float32).data).hexdigest()
