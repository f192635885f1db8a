"""bertkit through its public interface."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

SETTINGS = [{}]


def load(folder: Path, precision: str, threads: int) -> Callable[..., np.ndarray]:
    import torch

    import bertkit

    torch.set_num_threads(threads)
    model = bertkit.load(folder, precision=precision, device="cpu")
    return lambda texts: model.embed(texts, report=bertkit.InferenceReport(), progress=False)


def load_query(folder: Path, precision: str, threads: int) -> Callable[[str], np.ndarray]:
    return load(folder, precision, threads)
