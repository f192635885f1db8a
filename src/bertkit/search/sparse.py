"""The learned sparse index of a store: SPLADE vectors of its texts, in the same commits as the records.

Weights are kept in 16 bits: as multiples of 1 / 8192, from 0 to 8, where log(1 + relu(logit)) stays far below; those of
a model that adds them up over the tokens of a text as multiples of 1 / 64, from 0 to 1,023.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bertkit.checkpoint.content_hash import content_hash
from bertkit.errors import UsageError, checked_path
from bertkit.locate import lasting_name
from bertkit.search.impacts import LARGEST_COUNT, ImpactIndex, Terms, View
from bertkit.search.store.snapshot import Snapshot

if TYPE_CHECKING:
    from bertkit.model import Model

_SCALES = {"max": 8192, "sum": 64}  # by pooling


class SparseIndex(ImpactIndex):
    """Products of learned sparse vectors of the texts of a store and of a query; a `TextIndex`.

    Args:
        folder: folder of the store.
        name: the model: a folder, a hub name, or the import name of a model package.
        model_hash: hash of its content; None: of the model as it is now.
        device: of the model.
        scale: stored numbers are weights multiplied by it; None: the scale of the model's pooling.
    """

    def __init__(
        self,
        folder: str | Path,
        name: str | Path,
        model_hash: str | None = None,
        device: str = "auto",
        scale: int | None = None,
    ) -> None:
        super().__init__(folder, "sparse_bag", "sparse")
        name = str(checked_path("the sparse model's name", name))
        self.model_name, self._device, self._given_scale = lasting_name(name), device, scale
        self.model_hash = model_hash or _located(name)[1]

    @classmethod
    def of_store(cls, folder: str | Path, connection: sqlite3.Connection, device: str = "auto") -> SparseIndex | None:
        """The index of an existing store; None if the store lacks one."""
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'sparse_model'")
        if not tables.fetchall():
            return None
        ((name, model_hash, scale),) = connection.execute("SELECT name, hash, scale FROM sparse_model").fetchall()
        return cls(folder, name, model_hash, device, scale)

    @cached_property
    def model(self) -> Model:
        """The model, loaded at first use.

        Raises:
            CheckpointError: no such model.
            UsageError: it has changed.
        """
        from bertkit.model import load

        path, changed_hash = _located(self.model_name)
        if changed_hash != self.model_hash:
            raise UsageError(
                f"the sparse model {self.model_name} has changed since the index was created: restore it, or index "
                "into a new folder"
            )
        return load(path, device=self._device)

    @property
    def _scale(self) -> int:
        return self._given_scale or _SCALES[self.model.checkpoint.sparse.pooling]

    def create(self, connection: sqlite3.Connection) -> None:
        super().create(connection)
        if self.of_store(self._folder, connection) is None:
            connection.execute(
                "CREATE TABLE sparse_model (name TEXT NOT NULL, hash TEXT NOT NULL, scale INTEGER NOT NULL)"
            )
            row = (self.model_name, self.model_hash, self._scale)
            connection.execute("INSERT INTO sparse_model VALUES (?, ?, ?)", row)

    def terms(self, connection: sqlite3.Connection, texts: list[str], names: list[str]) -> Iterator[Terms]:
        vectors = self.model.embed_sparse(texts)
        weights = np.minimum(np.rint(vectors.weights * np.float64(self._scale)), LARGEST_COUNT).astype(np.uint16)
        for start, end in zip(vectors.starts[:-1], vectors.starts[1:], strict=True):
            yield Terms(0, vectors.token_ids[start:end].astype(np.uint32), weights[start:end])

    def add_scores(self, snapshot: Snapshot, view: View, query: str, scores: np.ndarray) -> None:
        vector = self.model.embed_sparse([query], as_queries=True)
        for token_id, weight in zip(vector.token_ids.tolist(), vector.weights.tolist(), strict=True):
            view.add_products(token_id, weight / self._scale, scores)


def _located(name: str | Path) -> tuple[Path, str]:
    """The folder of a model, and the hash of its content."""
    from bertkit.words.opening import encoder_path

    path = encoder_path(name, "; if it was moved: bertkit index FILES --sparse ITS_NEW_FOLDER")
    return path, content_hash(path)
