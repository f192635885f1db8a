"""The one loop that runs a network over encodings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from bertkit.batch import Batch, collate, length_sorted_batches
from bertkit.heads import Bert
from bertkit.tokenizer import Encoding, Tokenizer

Item = TypeVar("Item")

_TOKENS_PER_BATCH = {"cpu": 4_096, "cuda": 65_536}
_ITEMS_AT_A_TIME = 8_192
_CHARACTERS_AT_A_TIME = 4_000_000


@dataclass(frozen=True)
class Runner:
    """A network and its tokenizer, ready to run."""

    network: Bert
    tokenizer: Tokenizer

    @property
    def device(self) -> torch.device:
        return self.network.encoder.embeddings.word.weight.device

    @property
    def max_positions(self) -> int:
        """Longest sequence the network can take, in tokens."""
        return self.network.config.max_position_embeddings

    def batches(
        self, encodings: Sequence[Encoding], tokens_per_batch: int | None = None
    ) -> Iterator[tuple[np.ndarray, Batch]]:
        """The encodings, longest first, in packed batches under a token budget, on the network's device.

        Yields:
            Indices into ``encodings``, and the batch of them, sequences in that order.
        """
        if tokens_per_batch is None:
            tokens_per_batch = _TOKENS_PER_BATCH.get(self.device.type, _TOKENS_PER_BATCH["cpu"])
        for indices in length_sorted_batches([len(encoding) for encoding in encodings], tokens_per_batch):
            yield indices, collate([encodings[index] for index in indices]).to(self.device)


def chunks(items: Iterable[Item], num_characters: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Items in lists small enough to hold at once, so that memory does not grow with their number."""
    chunk: list[Item] = []
    characters = 0
    for item in items:
        chunk.append(item)
        characters += num_characters(item)
        if len(chunk) >= _ITEMS_AT_A_TIME or characters >= _CHARACTERS_AT_A_TIME:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
