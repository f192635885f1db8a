"""mteb: a model as the encoder or cross-encoder of `mteb.evaluate`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DependencyError
from bertkit.inference import EmbedReport
from bertkit.model import load
from bertkit.search.prompts import prompts_of
from bertkit.words.opening import open_encoder

try:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction
    from mteb.types import PromptType
except ImportError:
    raise DependencyError("this adapter needs mteb: pip install 'bertkit[eval]'") from None

_SIMILARITIES = ("cosine", "dot")  # those that mteb computes


class BertkitEncoder(AbsEncoder):
    """A text encoder with its prompts of queries and documents; other texts get the default prompt of the model.

    Args:
        model: a folder, a hub name, or the import name of a model package.
        revision: as mteb names it, for its results.
        prompts: ``query_prompt``, ``document_prompt`` or ``no_prompt``, as for `bertkit.search.prompts.prompts_of`.

    Raises:
        CheckpointError: no such model.
        UsageError: prompts that are contradictory, or missing for a model of a known family.
    """

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        *,
        device: str | None = None,
        precision: str = "float32",
        **prompts: Any,
    ) -> None:
        self.encoder = open_encoder(model, precision=precision, device=device or "auto")
        settings = self.encoder.sentence_settings
        self.prompts = prompts_of(str(model), settings, **prompts)
        similarity = settings.similarity if settings.similarity in _SIMILARITIES else "cosine"
        self.normalize = None if similarity == "dot" else True
        self.mteb_model_meta = _meta(model, revision, "dense", similarity_fn_name=ScoringFunction(similarity))

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **options: Any) -> np.ndarray:
        """(num_texts, width) float32 vectors of mteb's batches of texts."""
        prompt = {PromptType.query: self.prompts.query, PromptType.document: self.prompts.document}.get(prompt_type)
        return self.encoder.embed(_texts(inputs), normalize=self.normalize, prompt=prompt, report=EmbedReport())


class BertkitCrossEncoder:
    """A cross-encoder, which scores queries with documents.

    Args:
        model: a folder or a hub name.
        revision: as mteb names it, for its results.

    Raises:
        CheckpointError: no such model.
    """

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        device: str | None = None,
        *,
        precision: str = "float32",
    ) -> None:
        self.model = load(model, precision=precision, device=device or "auto")
        self.mteb_model_meta = _meta(model, revision, "cross-encoder")

    def predict(
        self, inputs1: Iterable[Mapping[str, Any]], inputs2: Iterable[Mapping[str, Any]], **options: Any
    ) -> np.ndarray:
        """(num_pairs,) float32 scores of mteb's batches of queries and documents."""
        return self.model.score_pairs(_texts(inputs1), _texts(inputs2))


def _texts(batches: Iterable[Mapping[str, Any]]) -> list[str]:
    return [text for batch in batches for text in batch["text"]]


def _meta(model: str | Path, revision: str | None, kind: str, **facts: Any) -> ModelMeta:
    name = f"bertkit/{Path(model).name}"
    return ModelMeta.create_empty({"name": name, "revision": revision or "local", "model_type": [kind], **facts})
