"""What embeds texts: a `Model`, or a static encoder. Search, features and evaluation take either."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from bertkit.checkpoint import SentenceSettings
from bertkit.inference.embed import EmbedReport


class TextEncoder(Protocol):
    """Texts to vectors of one width."""

    @property
    def sentence_settings(self) -> SentenceSettings:
        """Pooling, normalization and prompts."""
        ...

    @property
    def precision(self) -> str:
        """Of the numbers in inference, as of `load`."""
        ...

    @property
    def precision_reason(self) -> str:
        """In one line, why this precision was chosen by trial; else empty."""
        ...

    def embed(self, texts: str | Iterable[str], *, report: EmbedReport | None = None, **options: Any) -> np.ndarray:
        """Texts to vectors; ``options`` are the fields of `EmbedOptions`."""
        ...

    def embed_stream(
        self, texts: Iterable[str], *, report: EmbedReport, **options: Any
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """The same in bounded memory."""
        ...
