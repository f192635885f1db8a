"""sentence-transformers on torch as its users call it: ``model.encode(texts)``."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

SETTINGS = [{}]


def load(folder: Path, precision: str, threads: int) -> Callable[[list[str]], np.ndarray]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": precision})
    return lambda texts: model.encode(texts)
