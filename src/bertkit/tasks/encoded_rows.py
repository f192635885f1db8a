"""Examples that are encoded once, and the encodings of some of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from bertkit.tasks.task import TextTask
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout
from bertkit.tokenizer.ragged import ranges


class EncodedRows(Sequence[Any]):
    """Examples with their encodings, which are kept for each tokenizer, layout and form of sequences."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self._examples = list(examples)
        self._kept: list[tuple[Any, Encodings]] = []

    @classmethod
    def of(cls, examples: Iterable[Any]) -> Self:
        """These rows if they are `EncodedRows` already, else new ones."""
        return examples if isinstance(examples, cls) else cls(examples)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: Any) -> Any:
        return self._examples[index]

    def encoded(self, task: TextTask, tokenizer: Tokenizer, layout: Layout) -> Encodings:
        """The encodings of all examples, as of `TextTask.encode`."""
        key = type(task).sequences, type(task).encode, task.of_tokens, task.sequence_form, layout, tokenizer
        for other, encodings in self._kept:
            if other == key:
                return encodings
        encodings = task.encode(tokenizer, self._examples, layout)
        self._kept.append((key, encodings))
        return encodings

    def in_chunks(
        self, task: TextTask, tokenizer: Tokenizer, layout: Layout
    ) -> Callable[[Sequence[Any], int], Encodings]:
        """A function that returns the encodings of the next examples, as `TextTask.encode` with a first index."""
        encodings, start = self.encoded(task, tokenizer, layout), 0

        def encode(chunk: Sequence[Any], first_index: int) -> Encodings:
            nonlocal start
            start, indices = start + len(chunk), np.arange(start, start + len(chunk))
            return encodings_of(encodings, indices)

        return encode


def encodings_of(encodings: Encodings, indices: np.ndarray) -> Encodings:
    """The sequences of the examples at (n,) ``indices``, in that order, with ``text_index`` from 0."""
    starts, ends = (np.searchsorted(encodings.text_index, indices, side) for side in ("left", "right"))
    text_index = np.repeat(np.arange(len(indices)), ends - starts).astype(encodings.text_index.dtype)
    return replace(encodings.take(ranges(starts, ends - starts)), text_index=text_index)
