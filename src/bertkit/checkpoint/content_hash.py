"""Hash of the content of a model folder, to detect changes."""

import hashlib
from pathlib import Path

from bertkit.errors import CheckpointError

_READ = {".json", ".txt", ".model", ".safetensors"}  # suffixes of the files that hold weights, config, tokenizer and
# settings


def content_hash(directory: Path) -> str:
    """Hash of every file that may be read when the directory is opened: 32 hexadecimal digits.

    It changes with any weight, vocabulary entry or setting. The files are read in full.

    Raises:
        CheckpointError: no file in it is part of a model.
    """
    total = hashlib.sha256()
    files = sorted(path for path in directory.rglob("*") if path.suffix in _READ and path.is_file())
    if not files:
        raise CheckpointError(f"{directory} holds no model")
    for path in files:
        total.update(f"{path.relative_to(directory).as_posix()}\0{file_sha256(path)}\0".encode())
    return total.hexdigest()[:32]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file: 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
