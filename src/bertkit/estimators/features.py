"""Features of a frozen encoder: text vectors, computed once, for any classifier."""

import hashlib
import json
from collections.abc import Iterator
from os.path import expanduser
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bertkit.checkpoint.content_hash import content_hash
from bertkit.errors import CheckpointError, OverLengthError, checked_path
from bertkit.estimators.estimator import items_of
from bertkit.inference import EmbedOptions, InferenceReport
from bertkit.inference.text_encoder import TextEncoder
from bertkit.inference.vector_cache import kept_vectors
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.wordpiece import explain_bad_text
from bertkit.version import __version__
from bertkit.words.opening import encoder_path, open_encoder


class Features(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Text vectors of a frozen published model (Devlin et al. 2018, section 5.3).

    For pipelines: ``make_pipeline(Features(model, cache="folder"), LogisticRegression())``. With a cache, cross
    validation, grid search and later fits encode each text only once. The cache key covers the model's files and
    every parameter below; remove the folder when it is no longer needed.

    Args:
        model: a folder, a hub name, the import name of an installed model package, or a file of word vectors. A pickle
            contains only its name.
        layers: hidden states to use: a name from `NAMED_LAYERS`, such as "concat-last-4", or as in "mean:1,-1".
        pooling: a name from `POOLINGS`; None: the model's own.
        normalize: scale vectors to length 1; None: as in the model's settings.
        max_length: longest sequence in tokens; None: the model's own.
        on_long: what to do with longer texts: "window" encodes them in full.
        cache: folder of cached vectors; None: no cache.
        precision: as for `load`: "float32" is exact, "bfloat16", "float16", "int8" and "auto" are faster.
        device: "auto", "cpu", "cuda".

    Attributes:
        model_hash_: hash of the model's files at ``fit``.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        layers: str = "last",
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        on_long: OnLong = "window",
        cache: str | Path | None = None,
        precision: str = "float32",
        device: str = "auto",
    ) -> None:
        self.model, self.layers, self.pooling, self.normalize = model, layers, pooling, normalize
        self.max_length, self.on_long, self.cache = max_length, on_long, cache
        self.precision, self.device = precision, device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters and locate the model; nothing is learned.

        Raises:
            CheckpointError: no such model.
            UsageError: an invalid parameter.
        """
        EmbedOptions(**self._options())
        self._opened: tuple[TextEncoder, str | Path, str, str] | None = None  # with its name, precision and device
        self.model_hash_ = content_hash(encoder_path(self.model))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Vectors of N texts, (N, E) float32.

        Raises:
            OverLengthError: a text is too long under ``on_long="error"``.
            CheckpointError: a text is not cached, and the model or its files changed since ``fit``.
            DataError: a text that is not valid Unicode.
            UsageError: an item that is not a text, layers that the model lacks, or a cache that is a file.
        """
        check_is_fitted(self, "model_hash_")
        texts = items_of(X)
        explain_bad_text(texts, 0)
        if self.cache is None or not texts:
            return self._model().embed(texts, **self._options())
        try:
            return kept_vectors(
                Path(expanduser(checked_path("cache", self.cache))) / self._selection(), texts, self._vectors
            )
        except OverLengthError as error:  # its index counts the texts passed to it
            raise OverLengthError(f"of the distinct texts not yet in the cache, {error}") from None

    @property
    def _n_features_out(self) -> int:
        """The number of columns, which `ClassNamePrefixFeaturesOutMixin` names features0, features1, ..."""
        check_is_fitted(self, "model_hash_")
        return self._model().embed([], **self._options()).shape[1]

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("layers", "pooling", "normalize", "max_length", "on_long")}

    def _selection(self) -> str:
        """Hash of everything but the text that a vector depends on."""
        known = [__version__, self.model_hash_, self.precision, self.device, self._options()]
        return hashlib.blake2b(json.dumps(known, default=str).encode(), digest_size=16).hexdigest()

    def _vectors(self, texts: list[str]) -> Iterator[np.ndarray]:
        report = InferenceReport()
        for _, vectors in self._model().embed_stream(texts, report=report, **self._options()):
            yield vectors
        report.warn_of_cuts("choose on_long='window' to encode them in full")

    def _model(self) -> TextEncoder:
        """The model, loaded at first use and for another name, precision or device; cached vectors do not need it."""
        asked = (self.model, self.precision, self.device)
        if self._opened is None or self._opened[1:] != asked:
            if content_hash(encoder_path(self.model)) != self.model_hash_:
                raise CheckpointError(f"the model {self.model} or its files have changed since fit: fit again")
            opened = open_encoder(self.model, precision=self.precision, device=self.device)
            self._opened = opened, *asked
        return self._opened[0]

    def __getstate__(self) -> dict[str, Any]:
        """The state without the model, which is located by its name."""
        state = dict(super().__getstate__())
        return state | {"_opened": None} if "_opened" in state else state
