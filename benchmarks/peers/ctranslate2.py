"""CTranslate2: length-sorted batches under a token budget; mean pooling in numpy, for it has none."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from peers import batching

# split: a worker for each thread instead of one that uses them all.
# isa: on AMD it takes AVX2 by itself, also where there is AVX-512; None leaves it the choice.
SETTINGS = [
    {"tokens_per_batch": 512, "split": True, "isa": "AVX512"},
    {"tokens_per_batch": 1024, "split": True, "isa": "AVX512"},
    {"tokens_per_batch": 2048, "split": True, "isa": "AVX512"},
    {"tokens_per_batch": 1024, "split": True, "isa": None},
    {"tokens_per_batch": 1024, "split": False, "isa": "AVX512"},
]


def convert(published: Path, folder: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(published)).convert(str(folder), force=True)
    shutil.copy(published / "tokenizer.json", folder)


def load(
    folder: Path, precision: str, threads: int, tokens_per_batch: int, split: bool, isa: str | None
) -> Callable[[list[str]], np.ndarray]:
    if isa is not None:
        os.environ["CT2_FORCE_CPU_ISA"] = isa
    import ctranslate2

    num_workers, threads_each = (threads, 1) if split else (1, threads)
    encoder = ctranslate2.Encoder(
        str(folder), "cpu", compute_type=precision, inter_threads=num_workers, intra_threads=threads_each
    )
    tokenizer = batching.open_tokenizer(folder)
    pool = ThreadPoolExecutor(num_workers)

    def embed(texts: list[str]) -> np.ndarray:
        ids = batching.token_ids(tokenizer, texts)

        def run(indices: np.ndarray) -> np.ndarray:
            rows = [ids[index] for index in indices]
            hidden = np.array(encoder.forward_batch(rows).last_hidden_state, copy=False)
            return batching.mean_pool(hidden, np.array([len(row) for row in rows]))

        batches = batching.length_sorted_batches(ids, tokens_per_batch)
        vectors = np.concatenate(list(pool.map(run, batches)))
        return vectors[np.argsort(np.concatenate(batches))]

    return embed
