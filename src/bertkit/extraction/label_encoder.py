"""Vectors of labels by an encoder of their own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import OverLengthError, UsageError
from bertkit.extraction.layers import LABELS_PROJECTION, Layers
from bertkit.heads.pooling import sequence_vectors
from bertkit.inference.runner import Runner, inferred
from bertkit.transformer.kernels.arrays import Rows, library_of

_MOST_KNOWN = 100_000
"""Labels whose vectors are kept."""

_MOST_PREPARED = 20_000
"""Labels, of all sets together, that are kept as the scorer reads them."""


class LabelEncoder:
    """Encodes each label once; its vector does not depend on other labels or texts.

    Args:
        prepare: (C, D) vectors of labels to what the scorer reads.
    """

    def __init__(self, runner: Runner, layers: Layers, prepare: Callable[[Rows], list[Any]]) -> None:
        self.runner, self.layers, self._prepare = runner, layers, prepare
        self._known: dict[str, Rows] = {}
        self._prepared: dict[tuple[str, ...], list[Any]] = {}

    def prepared(self, labels: tuple[str, ...]) -> list[Any]:
        """The labels as the scorer reads them, made once for a set of labels.

        Raises:
            UsageError: as `vectors`.
        """
        values = self._prepared.get(labels)
        if values is None:
            vectors = self.vectors(labels)
            values = inferred(lambda: self._prepare(vectors))
            if sum(map(len, self._prepared)) + len(labels) > _MOST_PREPARED:
                self._prepared = {}
            self._prepared[labels] = values
        return values

    def vectors(self, labels: Sequence[str]) -> Rows:
        """(C, D) vectors.

        Raises:
            UsageError: a label is longer than the encoder accepts.
        """
        if len(self._known) > _MOST_KNOWN:
            self._known = {}
        if unknown := [label for label in labels if label not in self._known]:
            self._known |= dict(zip(unknown, self._encoded(unknown), strict=True))
        rows = [self._known[label] for label in labels]
        return library_of(rows[0]).stack(rows)

    def _encoded(self, labels: list[str]) -> Rows:
        try:
            encodings = self.runner.encode_whole(labels, with_offsets=False)
        except OverLengthError as error:
            raise UsageError(
                f"the label {labels[error.index]!r:.60} {error.problem.partition(':')[0]}: shorten it"
            ) from None

        def forward(batch: Batch, indices: np.ndarray) -> Rows:
            return sequence_vectors("mean", self.runner.encoder(batch, with_pooled=False), batch)

        pooled = self.runner.run(encodings, forward)
        return inferred(lambda: self.layers.projected(LABELS_PROJECTION, self.layers.read(pooled)))
