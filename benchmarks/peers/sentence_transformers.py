"""sentence-transformers on torch: ``model.encode(texts)`` with default settings or with the best batch size.

It sorts by length and pads each batch to its longest text by itself.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

SETTINGS = [{"batch_size": 8}, {"batch_size": 32}, {"batch_size": 128}]


def load(folder: Path, precision: str, threads: int) -> Callable[..., np.ndarray]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": precision})
    return model.encode


def load_query(folder: Path, precision: str, threads: int) -> Callable[[str], np.ndarray]:
    return load(folder, precision, threads)
