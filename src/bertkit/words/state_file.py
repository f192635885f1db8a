"""File with the state of an unfinished training of word or token vectors."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bertkit.errors import UsageError
from bertkit.files.whole_files import whole_file

SAVE_SECONDS = 60.0
"""Seconds between two writes of a state."""


def fingerprint_of(settings: Any, parts: Iterable[bytes], *facts: Any) -> str:
    """Digest of the settings and data of a run."""
    digest = hashlib.sha256(json.dumps([asdict(settings), *facts]).encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


@dataclass(frozen=True)
class StateFile:
    """Arrays and facts of a run with a fingerprint; without a path nothing is written."""

    path: Path | None
    fingerprint: str = ""

    def read(self) -> tuple[dict[str, np.ndarray], dict[str, str]] | None:
        """The arrays and the facts; None: there is no file.

        Raises:
            UsageError: the file is from another run, or cannot be read.
        """
        if self.path is None or not self.path.is_file():
            return None
        try:
            with safe_open(self.path, "numpy") as stored:
                arrays, facts = {name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata() or {}  # noqa: SIM118
        except SafetensorError as error:
            raise UsageError(
                f"{self.path} cannot be read as the state of a run ({error}): remove the file, and start again"
            ) from None
        if facts.get("fingerprint") != self.fingerprint:
            raise UsageError(f"{self.path} is from a run with other texts or settings: finish it, or remove the file")
        return arrays, facts

    def write(self, arrays: dict[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Write the state; atomically."""
        if self.path is not None:
            about = {name: repr(value) for name, value in facts.items()} | {"fingerprint": self.fingerprint}
            with whole_file(self.path) as temporary:
                save_file(arrays, temporary, about)
