"""How the tokens of a text are shown in running text, for any kind of tokenizer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Pieces:
    """The characters of each token, and whether it follows the one before it without a space."""

    texts: list[str]
    joined: list[bool]

    @classmethod
    def of(cls, texts: Iterable[str], tokens: Sequence[str], offsets: np.ndarray, unknown: str) -> "Pieces":
        """The pieces of tokens.

        Args:
            texts: the text that each token is of.
            offsets: (L, 2) characters of each token in its text; of an added token, which is shown by its name, none.
            unknown: the token of unknown words, shown by its name too.
        """
        pieces, joined, end_before = [], [], -1
        for text, token, (start, end) in zip(texts, tokens, offsets.tolist(), strict=True):
            written = text[start:end].strip()
            pieces.append(token if token == unknown or not written else written)
            joined.append(bool(written) and start == end_before and not text[start].isspace())
            end_before = end if written else -1
        return cls(pieces, joined)
