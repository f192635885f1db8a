"""CTranslate2: length-sorted batches under a token budget; mean pooling in numpy, which CTranslate2 lacks."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peers import batching, cpu_has

if TYPE_CHECKING:
    import ctranslate2

SETTINGS = [{"tokens_per_batch": 512}, {"tokens_per_batch": 1024}, {"tokens_per_batch": 2048}]


def convert(published: Path, folder: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(published)).convert(str(folder), force=True)
    shutil.copy(published / "tokenizer.json", folder)


def load(folder: Path, precision: str, threads: int) -> Callable[..., np.ndarray]:
    # A worker for each thread: one that uses them all was slower (MiniLM, documentation passages).
    encoder = _open(folder, precision, num_workers=threads, threads_each=1)
    tokenizer = batching.open_tokenizer(folder)
    pool = ThreadPoolExecutor(threads)

    def embed(texts: list[str], tokens_per_batch: int) -> np.ndarray:
        ids = batching.token_ids(tokenizer, texts)
        batches = batching.length_sorted_batches(ids, tokens_per_batch)
        vectors = pool.map(lambda indices: _vectors(encoder, [ids[index] for index in indices]), batches)
        return np.concatenate(list(vectors))[np.argsort(np.concatenate(batches))]

    return embed


def load_query(folder: Path, precision: str, threads: int) -> Callable[[str], np.ndarray]:
    encoder = _open(folder, precision, num_workers=1, threads_each=threads)
    tokenizer = batching.open_tokenizer(folder)
    return lambda text: _vectors(encoder, [tokenizer.encode(text).ids])[0]


def _open(folder: Path, precision: str, num_workers: int, threads_each: int) -> "ctranslate2.Encoder":
    if cpu_has("avx512f"):  # on AMD it takes AVX2 by itself
        os.environ["CT2_FORCE_CPU_ISA"] = "AVX512"
    import ctranslate2

    return ctranslate2.Encoder(
        str(folder), "cpu", compute_type=precision, inter_threads=num_workers, intra_threads=threads_each
    )


def _vectors(encoder: "ctranslate2.Encoder", rows: list[list[int]]) -> np.ndarray:
    hidden = np.array(encoder.forward_batch(rows).last_hidden_state, copy=False)
    return batching.mean_pool(hidden, np.array([len(row) for row in rows]))
