"""A peer that embeds one text at a time, with the time of each text."""

import importlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def load(
    module: str, folder: Path, precision: str, threads: int
) -> Callable[[list[str]], tuple[list[float], np.ndarray]]:
    """A function of texts and the pause before each; it returns the seconds of each text, (N,), and (N, D) vectors."""
    embed_one = importlib.import_module(f"peers.{module}").load_query(folder, precision, threads)

    def embed_all(queries: list[str], pause: float = 0.0) -> tuple[list[float], np.ndarray]:
        seconds, vectors = [], []
        for query in queries:
            time.sleep(pause)
            start = time.perf_counter()
            vector = embed_one(query)
            seconds.append(time.perf_counter() - start)
            vectors.append(vector)
        return seconds, np.array(vectors, np.float32)

    return embed_all
