"""Folders of static encoders: ``StaticEmbedding`` of sentence-transformers 3 to 6, and model2vec."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bertkit.checkpoint import SentenceSettings
from bertkit.checkpoint.own_record import NAME, read_section, write_record
from bertkit.checkpoint.sentence import read_static_settings, settings_json
from bertkit.checkpoint.weights import read_arrays, stored_tensors
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.files.whole_files import whole_folder
from bertkit.locate import transformer_folder
from bertkit.tokenizer.chunks import CachingLibrary
from bertkit.tokenizer.published import wordpiece_of
from bertkit.tokenizer.vocabulary import SpecialTokens, from_ids
from bertkit.words.encoder import StaticEncoder
from bertkit.words.finite import row_not_finite
from bertkit.words.tokens import HIDDEN, EngineTokens, LibraryTokens, Tokens

_NGRAMS = "ngrams.safetensors"
_MODEL2VEC_LENGTH = 512
"""Default of model2vec for the number of tokens of a text to read."""


def is_static_folder(folder: Path) -> bool:
    """True for a folder of sentence-transformers' StaticEmbedding or of model2vec."""
    return _is_model2vec(folder) or read_static_settings(folder) is not None


def read_static_folder(folder: Path) -> StaticEncoder:
    """The encoder of a folder.

    Raises:
        CheckpointError: weights, a tokenizer or a module that cannot be read.
    """
    settings = read_static_settings(folder)
    inside = folder if settings is None else transformer_folder(folder)
    tokens, num_tokens, limit = _read_tokens(inside / "tokenizer.json")
    vectors, rows, weights = _read_vectors(inside, tokens, num_tokens)
    if not _is_model2vec(folder):
        path, ours = folder / NAME, read_section(folder, "static") or {}
        skip = member(ours, "skip_unknown", bool, path, False)
        if skip and tokens.unk_id >= 0:
            rows[tokens.unk_id] = -1
        limit = member(ours, "max_length", int, path, limit)
        max_characters = member(ours, "max_characters", int, path)
        ngrams = _read_ngrams(folder / _NGRAMS, vectors.shape[1])
        return StaticEncoder(
            tokens, vectors, rows, weights, settings or SentenceSettings(), skip, limit, max_characters, ngrams
        )
    config = read_json(folder / "config.json") or {}
    normalize = member(config, "normalize", bool, folder, False)
    limit = member(config, "max_length", int, folder, None if "max_length" in config else _MODEL2VEC_LENGTH)
    lengths = [len(token) for token in tokens.vocabulary.tokens if not token.startswith("\uffff")]
    max_characters = None if limit is None else limit * int(np.median(lengths))
    return StaticEncoder(
        tokens, vectors, rows, weights, SentenceSettings(normalize=normalize), True, limit, max_characters
    )


def write_static_folder(encoder: StaticEncoder, folder: Path, *, overwrite: bool) -> None:
    """Write a folder of StaticEmbedding; as `StaticEncoder.save`."""
    vectors = np.zeros((len(encoder.rows), encoder.embedding_dim), np.float32)
    known = np.flatnonzero(encoder.rows >= 0)
    vectors[known] = encoder.vectors[encoder.rows[known]] * encoder.weights[known, None]
    if encoder.skip_unknown and encoder.tokens.unk_id >= 0:
        vectors[encoder.tokens.unk_id] = 0
    settings = encoder.settings
    kinds = ["StaticEmbedding"] + ["Normalize"] * settings.normalize
    with whole_folder(folder, overwrite=overwrite) as temporary:
        inside = temporary / "0_StaticEmbedding"
        inside.mkdir()
        save_file({"embedding.weight": vectors}, inside / "model.safetensors", {"format": "pt"})
        write_json(inside / "tokenizer.json", json.loads(encoder.tokens.definition()))
        modules = [
            {
                "idx": index,
                "name": str(index),
                "path": f"{index}_{kind}",
                "type": f"sentence_transformers.models.{kind}",
            }
            for index, kind in enumerate(kinds)
        ]
        for module in modules[1:]:
            (temporary / module["path"]).mkdir()
        write_json(temporary / "modules.json", modules)
        kind = {"model_type": "SentenceTransformer"}
        write_json(temporary / "config_sentence_transformers.json", kind | settings_json(settings))
        own = {
            "skip_unknown": encoder.skip_unknown,
            "max_length": encoder.max_length,
            "max_characters": encoder.max_characters,
        }
        write_record(temporary, {"static": own})
        if encoder.ngrams is not None:
            save_file({"ngrams": encoder.ngrams}, temporary / _NGRAMS)


def _read_ngrams(path: Path, dim: int) -> np.ndarray | None:
    if not path.is_file():
        return None
    try:
        ngrams = load_file(path)["ngrams"]
    except (SafetensorError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): save the model again") from None
    if ngrams.ndim != 2 or ngrams.shape[1] != dim or not len(ngrams):
        raise CheckpointError(f"{path} has vectors of shape {ngrams.shape}: expected (rows, {dim})")
    return ngrams


def _is_model2vec(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("config.json", "model.safetensors")) and (
        "embeddings" in stored_tensors(folder)
    )


def _read_tokens(path: Path) -> tuple[Tokens, int, int | None]:
    """The tokens, the number of entries in the file, and its maximum number of tokens of a text."""
    content: dict[str, Any] | None = read_json(path)
    if content is None:
        raise CheckpointError(f"{path.parent} lacks tokenizer.json: fetch the model again")
    truncation = member(content, "truncation", dict, path, {})
    limit = member(truncation, "max_length", int, path)
    engine = wordpiece_of(content, path)
    if engine is not None:
        names = {*content["model"]["vocab"], *(token["content"] for token in content.get("added_tokens") or ())}
        return EngineTokens(engine, json.dumps(content, ensure_ascii=False)), len(names), limit
    definition = json.dumps(content, ensure_ascii=False)
    try:
        library = tokenizers.Tokenizer.from_str(definition)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain Exceptions, and panics
        raise CheckpointError(
            f"{path} cannot be read by the tokenizers library ({error!s:.200}): fetch it again"
        ) from None
    library.no_truncation()
    library.no_padding()
    model = member(content, "model", dict, path, {})
    unk_id = model.get("unk_id") if "unk_id" in model else library.token_to_id(str(model.get("unk_token")))
    vocabulary = from_ids(library.get_vocab(with_added_tokens=True).items(), SpecialTokens())
    return (
        LibraryTokens(definition, vocabulary, -1 if unk_id is None else int(unk_id), CachingLibrary(library)),
        len(vocabulary),
        limit,
    )


def _read_vectors(folder: Path, tokens: Tokens, named: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, rows and weights, as in `StaticEncoder`; ``named`` is the number of entries of the tokenizer."""
    tensors = read_arrays(stored_tensors(folder).values(), None)
    stored = tensors.get("embedding.weight", tensors.get("embeddings"))
    num_tokens = len(tokens.vocabulary)
    if stored is None or stored.ndim != 2:
        raise CheckpointError(f"{folder} holds {', '.join(sorted(tensors))}: expected embedding.weight or embeddings")
    vectors = stored.astype(np.float32, copy=False)
    if (row := row_not_finite(vectors)) is not None:
        raise CheckpointError(f"{folder}, vector {row}: a number is NaN or infinite; fetch or train the model again")
    mapping, scale = tensors.get("mapping"), tensors.get("weights")
    num_stored = len(vectors) if mapping is None else len(mapping)
    rows, weights = np.full(num_tokens, -1, np.int32), np.ones(num_tokens, np.float32)
    if num_stored < named or (scale is not None and len(scale) < named):
        raise CheckpointError(f"{folder} has vectors of {num_stored} tokens, its tokenizer {named}: fetch it again")
    rows[:named] = np.arange(named) if mapping is None else mapping[:named]
    if rows.max() >= len(vectors):
        raise CheckpointError(f"{folder} maps a token to vector {rows.max()} of {len(vectors)}: fetch it again")
    special = tokens.vocabulary.special
    rows[[tokens.vocabulary.id(name) for name in (special.cls, special.sep) if name.startswith(HIDDEN)]] = -1
    if scale is not None:
        weights[:named] = scale[:named]
    return vectors, rows, weights
