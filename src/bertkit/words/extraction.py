"""Static encoders extracted from a model (model2vec).

The recipe of model2vec (Tulkens and van Dongen 2024), without its clean-up of the vocabulary.
"""

from dataclasses import replace

import numpy as np
from tqdm import tqdm

from bertkit.batch import Batch
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import UsageError, checked_count
from bertkit.later import torch
from bertkit.model import Model, check_model
from bertkit.words.encoder import StaticEncoder
from bertkit.words.opening import input_embeddings

_TOKENS_AT_A_TIME = 2_048


def extract(model: Model, dimensions: int | None = None, *, progress: bool | None = None) -> StaticEncoder:
    """Extract a static encoder from a model.

    Each token is run through the model alone, between [CLS] and [SEP]; the mean of the three outputs is reduced by
    principal components, and weighted by 1e-4 / (1e-4 + p) with p falling with the rank in the vocabulary (Zipf).
    Averages are scaled to length 1.

    Args:
        dimensions: components to keep, at most the model's; None: 256, or all of a model that has fewer.

    Raises:
        UsageError: more dimensions than the model has.
    """
    check_model(model)
    width = model.config.hidden_size
    dimensions = min(256, width) if dimensions is None else checked_count("dimensions", dimensions)
    if dimensions > width:
        raise UsageError(f"dimensions={dimensions}: expected 1 to {width}, the width of the model")
    encoder = input_embeddings(model)
    known = np.flatnonzero(encoder.rows >= 0)
    outputs = np.empty((len(known), width), np.float32)
    starts = range(0, len(known), _TOKENS_AT_A_TIME)
    for start in tqdm(starts, desc="tokens", delay=2, disable=None if progress is None else not progress):
        part = known[start : start + _TOKENS_AT_A_TIME]
        outputs[start : start + len(part)] = token_outputs(model, part)
    vectors = principal_components(outputs, dimensions)
    rows = np.full(len(encoder.rows), -1, np.int32)
    rows[known] = np.arange(len(known))
    settings = SentenceSettings(normalize=True)
    return replace(encoder, vectors=vectors, rows=rows, settings=settings).weighted("sif")


def token_outputs(model: Model, token_ids: np.ndarray) -> np.ndarray:
    """(n, D) float32: the mean of the last hidden states of [CLS], if the tokenizer has it, a token and [SEP]."""
    ids = torch.empty((len(token_ids), 3), dtype=torch.long)
    ids[:, 0], ids[:, 2] = model.tokenizer.cls_id, model.tokenizer.sep_id
    ids[:, 1] = torch.from_numpy(token_ids)
    ids = ids[:, not model.tokenizer.engine.template.has_first :]
    with torch.inference_mode():
        states = model.encoder(Batch.from_padded(ids.to(model.device))).last_hidden_state
        return states.unflatten(0, ids.shape).mean(dim=1).float().cpu().numpy()


def principal_components(vectors: np.ndarray, dimensions: int) -> np.ndarray:
    """(n, dimensions) float32: centered (n, D) vectors, projected to the axes of largest variance."""
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centered.T @ centered)
    return (centered @ axes[:, ::-1][:, :dimensions]).astype(np.float32)
