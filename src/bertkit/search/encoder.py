"""Encoder of a store: embeds queries and documents, each with its prompt."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.checkpoint.content_hash import content_hash
from bertkit.errors import check_several
from bertkit.inference import InferenceReport
from bertkit.inference.text_encoder import TextEncoder
from bertkit.locate import lasting_name
from bertkit.model import Model
from bertkit.search.prompts import prompts_of
from bertkit.search.records import Identity, Similarity
from bertkit.words.opening import encoder_path, open_encoder


class Encoder(NamedTuple):
    """A model with the prompts and settings of a store."""

    model: TextEncoder
    identity: Identity

    @classmethod
    def of(
        cls,
        name: str | Path,
        *,
        precision: str = "float32",
        device: str = "auto",
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        no_prompt: bool = False,
        similarity: Similarity | None = None,
        advice: str = "",
    ) -> "Encoder":
        """Open a model for a new store.

        Args:
            similarity: "cosine" or "dot"; None: the dot product for a model that is published with it and whose vectors
                are not normalized, else the cosine.
            advice: end of the error for a model that is not found.

        Raises:
            CheckpointError: no such model.
            UsageError: prompts that are contradictory, or missing for a model of a known family.
        """
        path = encoder_path(name, advice)
        model = open_encoder(path, precision=precision, device=device)
        settings = model.sentence_settings
        prompts = prompts_of(str(name), settings, query_prompt, document_prompt, no_prompt=no_prompt)
        published: Similarity = "dot" if settings.similarity == "dot" and not settings.normalize else "cosine"
        identity = Identity(
            content_hash(path),
            model.embed("", report=InferenceReport()).shape[0],
            similarity or published,
            prompts.query,
            prompts.document,
            settings.pooling,
            model.precision,
            lasting_name(name),
        )
        return cls(model, identity)

    @classmethod
    def of_identity(cls, identity: Identity, device: str = "auto", advice: str = "") -> "Encoder":
        """Open the model that a store was made with.

        Args:
            advice: as of `of`.

        Raises:
            CheckpointError: no such model.
            UsageError: the model with that name has changed.
        """
        encoder = cls.of(
            identity.model_name,
            precision=identity.precision,
            device=device,
            query_prompt=identity.query_prompt,
            document_prompt=identity.document_prompt,
            similarity=identity.similarity,
            advice=advice,
        )
        identity.check(encoder.identity)
        return encoder

    def embed_query(self, texts: list[str], report: InferenceReport | None = None) -> np.ndarray:
        """(num_texts, dimensions) float32, with the prompt of queries; of length 1 for the cosine. Texts that are cut
        are counted in the report; without it they issue a TruncationWarning."""
        return self._embed(texts, self.identity.query_prompt, report)

    def embed_document(self, texts: list[str], report: InferenceReport | None = None) -> np.ndarray:
        """As `embed_query`, with the prompt of documents."""
        return self._embed(texts, self.identity.document_prompt, report)

    def are_unknown(self, texts: list[str]) -> np.ndarray:
        """(num_texts,) bool: texts without a token that the model knows, which have one and the same vector."""
        if not isinstance(self.model, Model):  # of a static encoder, that vector is zero
            return np.zeros(len(texts), bool)
        return self.model.tokenizer.encode_batch(texts).are_empty()

    def _embed(self, texts: list[str], prompt: str, report: InferenceReport | None) -> np.ndarray:
        check_several("texts", texts)
        normalize = True if self.identity.similarity == "cosine" else None  # None: as published
        counts = InferenceReport() if report is None else report  # unknown words, too, which issue no warning here
        vectors = self.model.embed(texts, normalize=normalize, prompt=prompt, report=counts, progress=False)
        if report is None:
            counts.warn_of_cuts("shorten them to compare them in full")
        return vectors
