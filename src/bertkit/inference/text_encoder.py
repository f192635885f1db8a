"""Interface of text encoders, a `Model` or a static encoder, for search, features and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from bertkit.checkpoint import SentenceSettings
from bertkit.inference.report import InferenceReport
from bertkit.later import torch


class TextEncoder(Protocol):
    """Encoder of texts as vectors."""

    @property
    def sentence_settings(self) -> SentenceSettings:
        """Pooling, normalization and prompts."""

    @property
    def precision(self) -> str:
        """Precision of inference, as in `load`."""

    @property
    def precision_reason(self) -> str:
        """Reason for a precision that was chosen by measurement, in one line; else empty."""

    @property
    def device(self) -> torch.device:
        """Device of inference."""

    def embed(self, texts: str | Iterable[str], *, report: InferenceReport | None = None, **options: Any) -> np.ndarray:
        """Texts to vectors; ``options`` are the fields of `EmbedOptions`."""

    def embed_stream(
        self, texts: Iterable[str], *, report: InferenceReport, **options: Any
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """`embed` in bounded memory."""
