"""Open word vectors from files, folders and names, and any text encoder by name."""

import os
from collections.abc import Sequence
from os.path import expanduser
from pathlib import Path

import numpy as np

from bertkit.errors import CheckpointError, UsageError, checked_path
from bertkit.inference.runner import checked_text
from bertkit.locate import locate
from bertkit.model import Model, check_model, load
from bertkit.neighbors import number_rows
from bertkit.tokenizer.tokenizer import refuse_one_text
from bertkit.transformer.kernels.arrays import floats
from bertkit.words.encoder import StaticEncoder
from bertkit.words.spacy_folder import read_spacy, spacy_vocabulary
from bertkit.words.static_folder import is_static_folder, read_static_folder
from bertkit.words.tokens import EngineTokens, whole_words
from bertkit.words.word_files import read_word_file

_OF_MODELS = (".json", ".safetensors", ".gguf", ".onnx", ".pt", ".pth", ".ckpt", ".h5")
"""Extensions of files in the folder of a model, which are not word vectors."""


def open_static(name: str | Path) -> StaticEncoder:
    """As `StaticEncoder.open`."""
    folder = encoder_path(name)
    if folder.is_file():
        return of_words(*read_word_file(folder))
    vocabulary = spacy_vocabulary(folder)
    if vocabulary is not None:
        return of_words(*read_spacy(vocabulary))
    if not is_static_folder(folder):
        raise CheckpointError(
            f"{folder} holds no word vectors: expected a file of word2vec, GloVe or fastText, or the folder of a spaCy "
            "pipeline, a StaticEmbedding or a model2vec model"
        )
    return read_static_folder(folder)


def encoder_path(name: str | Path, advice: str = "") -> Path:
    """The file or folder that `open_encoder` opens.

    Args:
        advice: end of the error.

    Raises:
        CheckpointError: no such model.
    """
    path = Path(expanduser(checked_path("the model's name", name)))
    try:
        return path if os.path.isfile(path) and path.suffix not in _OF_MODELS else locate(name)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{advice}") from None


def open_encoder(name: str | Path, *, precision: str = "float32", device: str = "auto") -> Model | StaticEncoder:
    """Open a text encoder: a `StaticEncoder` for word vectors, a `Model` for everything else.

    Args:
        name: as in `StaticEncoder.open` and `load`.
        precision, device: of a model, as in `load`.

    Raises:
        CheckpointError: no such model, or one that cannot be opened.
        DataError: a file of word vectors that cannot be read.
    """
    path = encoder_path(name)
    if path.is_file() or spacy_vocabulary(path) is not None or is_static_folder(path):
        return open_static(path)
    return load(name, precision=precision, device=device)


def of_words(words: Sequence[str], vectors: np.ndarray, rows: np.ndarray | None = None) -> StaticEncoder:
    """As `StaticEncoder.of_words`."""
    refuse_one_text(words)
    words, vectors = [checked_text(word) for word in words], number_rows(vectors, "of_words")
    if len(set(words)) < len(words) or not words:
        raise UsageError(f"{len(words)} words, {len(set(words))} of them different: expected one or more, each once")
    if rows is None and len(vectors) != len(words):
        raise UsageError(f"{len(words)} words and vectors of shape {vectors.shape}: expected a vector for each word")
    rows = np.arange(len(words)) if rows is None else np.asarray(rows)
    if rows.shape != (len(words),) or rows.dtype.kind not in "iu" or (rows >= len(vectors)).any():
        raise UsageError(
            f"rows {rows.tolist()!r:.60} of type {rows.dtype}: expected {len(words)} integers below {len(vectors)}, "
            "the number of vectors; a negative one for a word without a vector"
        )
    tokens = whole_words(words)
    num_tokens = len(tokens.vocabulary)
    all_rows = np.full(num_tokens, -1, np.int32)
    all_rows[: len(words)] = np.maximum(rows.astype(np.int64), -1)
    matrix = np.ascontiguousarray(vectors, np.float32)
    return StaticEncoder(tokens, matrix, all_rows, np.ones(num_tokens, np.float32))


def open_words(name: str | Path) -> StaticEncoder:
    """Open word vectors by name; for a model its input embeddings.

    Raises:
        CheckpointError: no such model, or one that cannot be opened.
        DataError: a file of word vectors that cannot be read.
    """
    opened = open_encoder(name)
    return opened if isinstance(opened, StaticEncoder) else input_embeddings(opened)


def input_embeddings(model: Model) -> StaticEncoder:
    """The input embeddings of a model, before positions and layers, with its own tokens.

    Special tokens have no vector, and neither have [unused] entries.
    """
    check_model(model)
    vectors = floats(model.checkpoint.parts.encoder.embeddings.word.weight)
    tokens = EngineTokens(model.tokenizer.engine)
    rows = np.full(len(tokens.vocabulary), -1, np.int32)
    for token_id, token in enumerate(tokens.vocabulary.tokens):
        if token_id not in model.tokenizer.vocabulary.special_ids() and not token.startswith("[unused"):
            rows[token_id] = token_id
    return StaticEncoder(tokens, vectors, rows, np.ones(len(rows), np.float32))
