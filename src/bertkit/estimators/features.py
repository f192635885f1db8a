"""Features of a frozen encoder: texts to vectors, computed once, for any classifier after it."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bertkit.checkpoint.content_hash import content_hash
from bertkit.errors import CheckpointError, OverLengthError, UsageError
from bertkit.estimators.estimator import items_of
from bertkit.inference import EmbedOptions, EmbedReport
from bertkit.inference.text_encoder import TextEncoder
from bertkit.inference.truncation import warn_of_truncation
from bertkit.inference.vector_cache import kept_vectors
from bertkit.tokenizer.layout import OnLong
from bertkit.version import __version__
from bertkit.words.opening import encoder_path, open_encoder


class Features(TransformerMixin, BaseEstimator):
    """The vectors of texts by a published model, whose weights stay as they are (Devlin et al. 2018, section 5.3).

    Made for a pipeline: ``make_pipeline(Features(model, cache="folder"), LogisticRegression())``. With a cache, cross
    validation, grid search and every later fit read each text once. What is kept depends on the model's files and on
    every parameter below; remove the folder when it is no longer needed.

    Args:
        model: a folder, a hub name, the import name of an installed model package, or a file of word vectors. A pickle
            holds its name alone.
        layers: which hidden states: a name from `NAMED_LAYERS`, as "concat-last-4", or spelled out, as "mean:1,-1".
        pooling: how the tokens of a text become one vector, a name from `POOLINGS`; None: as the model says.
        normalize: scale vectors to length 1; None: as the model says.
        max_length: longest sequence in tokens; None: as the model says.
        on_long: what to do with longer texts: "window" reads them whole.
        cache: folder where vectors are kept; None: nowhere.
        precision: as of `load`: "float32" is exact, "bfloat16", "int8" and "auto" are faster.
        device: "auto", "cpu", "cuda".

    Attributes:
        model_hash_: of the model's files as they were at ``fit``.
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
            UsageError: a parameter that cannot be.
        """
        EmbedOptions(**self._options())
        self._opened: TextEncoder | None = None
        self.model_hash_ = content_hash(encoder_path(self.model))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """(N, E) float32, the vectors of N texts.

        Raises:
            OverLengthError: a text is too long under ``on_long="error"``.
            CheckpointError: a text has to be read, and the model is no longer that of ``fit``.
            UsageError: something that is no text, layers that the model has not.
        """
        check_is_fitted(self, "model_hash_")
        texts = items_of(X)
        for text in texts:
            if not isinstance(text, str):
                raise UsageError(f"a text is {type(text).__name__} ({text!r:.40}): expected str")
        if self.cache is None or not texts:
            return self._model().embed(texts, **self._options())
        try:
            return kept_vectors(Path(self.cache).expanduser() / self._selection(), texts, self._vectors)
        except OverLengthError as error:  # it counts the texts that it was given
            raise OverLengthError(f"of the different texts that are not kept yet, {error}") from None

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("layers", "pooling", "normalize", "max_length", "on_long")}

    def _selection(self) -> str:
        """A hash of all that a text's vector depends on but the text."""
        known = [__version__, self.model_hash_, self.precision, self.device, self._options()]
        return hashlib.blake2b(json.dumps(known, default=str).encode(), digest_size=16).hexdigest()

    def _vectors(self, texts: list[str]) -> Iterator[np.ndarray]:
        report = EmbedReport()
        for _, vectors in self._model().embed_stream(texts, report=report, **self._options()):
            yield vectors
        remedy = "choose on_long='window' to read them whole"
        warn_of_truncation(report.num_texts, report.num_texts_cut, report.num_tokens_cut, remedy, stacklevel=4)

    def _model(self) -> TextEncoder:
        """The model, opened when it is first needed: vectors that are kept need none."""
        if self._opened is None:
            if content_hash(encoder_path(self.model)) != self.model_hash_:
                raise CheckpointError(f"the files of the model {self.model} have changed since fit: fit again")
            self._opened = open_encoder(self.model, precision=self.precision, device=self.device)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        """The state without the model, which is located by its name."""
        state = dict(super().__getstate__())
        return state | {"_opened": None} if "_opened" in state else state
