"""Writer of word2vec's text format."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_word2vec(path: Path, words: Sequence[str], vectors: np.ndarray) -> None:
    """Write words and their (N, D) vectors; numbers have nine significant digits, to be exact for float32."""
    lines = [f"{len(words)} {vectors.shape[1]}\n"]
    for word, vector in zip(words, vectors, strict=True):
        lines.append(" ".join([word, *(f"{number:.9g}" for number in vector.tolist())]) + "\n")
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
