"""mteb: a model as the encoder or cross-encoder of `mteb.evaluate`."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.checkpoint.content_hash import content_hash
from bertkit.errors import DependencyError, UsageError, check_several
from bertkit.inference import InferenceReport
from bertkit.model import load
from bertkit.search.prompts import prompts_of
from bertkit.words.opening import encoder_path, open_encoder

try:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction
    from mteb.types import PromptType
except ImportError:
    raise DependencyError("this adapter needs mteb: pip install 'bertkit[eval]'") from None

_SIMILARITIES = ("cosine", "dot")  # those that mteb computes


class BertkitEncoder(AbsEncoder):
    """A text encoder with its prompts of queries and documents; other texts get the default prompt of the model, or
    with ``no_prompt`` none.

    Args:
        model: a folder, a hub name, the import name of a model package, or a file of word vectors.
        revision: by which mteb keeps results; by default a hash of the model's files, precision and prompts.
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
        self._other_prompt = "" if prompts.get("no_prompt") else None
        revision = revision or _revision(model, precision, self.prompts.query, self.prompts.document)
        self.mteb_model_meta = _meta(model, revision, "dense", similarity_fn_name=ScoringFunction(similarity))

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **options: Any) -> np.ndarray:
        """(num_texts, width) float32 vectors of mteb's batches of texts."""
        of_type = {PromptType.query: self.prompts.query, PromptType.document: self.prompts.document}
        prompt = of_type.get(prompt_type, self._other_prompt)
        return self.encoder.embed(_texts(inputs), normalize=self.normalize, prompt=prompt, report=InferenceReport())


class BertkitCrossEncoder:
    """A cross-encoder, which scores queries with documents.

    Args:
        model: a folder or a hub name.
        revision: by which mteb keeps results; by default a hash of the model's files and precision.

    Raises:
        CheckpointError: no such model.
        UsageError: a model with several labels.
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
        self.model.rank("", [])  # which refuses several labels
        self.mteb_model_meta = _meta(model, revision or _revision(model, precision), "cross-encoder")

    def predict(
        self, inputs1: Iterable[Mapping[str, Any]], inputs2: Iterable[Mapping[str, Any]], **options: Any
    ) -> np.ndarray:
        """(num_pairs,) float32 scores of mteb's batches of queries and documents."""
        return self.model.score_pairs(_texts(inputs1), _texts(inputs2))


def _texts(batches: Iterable[Mapping[str, Any]]) -> list[str]:
    texts: list[str] = []
    for batch in batches:
        if not isinstance(batch, Mapping) or "text" not in batch:
            raise UsageError(f"a batch is {batch!r:.60}: expected one of mteb, with texts under the key text")
        check_several("text", batch["text"])
        texts += batch["text"]
    return texts


def _revision(model: str | Path, *settings: object) -> str:
    return hashlib.sha256(f"{content_hash(encoder_path(model))} {settings}".encode()).hexdigest()[:32]


def _meta(model: str | Path, revision: str, kind: str, **facts: Any) -> ModelMeta:
    name = f"bertkit/{Path(model).name}"
    return ModelMeta.create_empty({"name": name, "revision": revision, "model_type": [kind], **facts})
