"""The one loop that runs a network over encodings."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from bertkit.batch import Batch, collate, length_sorted_batches
from bertkit.heads import Bert
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.transformer import AnyEncoder, AnyPrepared

Item = TypeVar("Item")
Result = TypeVar("Result")

_TOKENS_PER_BATCH = {"cpu": 1_024, "cuda": 65_536}
_WORTH_A_CORE = 256  # tokens for which a second core is called
_ITEMS_AT_A_TIME = 8_192
_CHARACTERS_AT_A_TIME = 4_000_000


@dataclass(frozen=True)
class Runner:
    """A network and its tokenizer, ready to run."""

    network: Bert
    tokenizer: Tokenizer
    encoder: AnyEncoder | AnyPrepared  # the network's own, or the same prepared for this machine

    @property
    def device(self) -> torch.device:
        return self.network.encoder.embeddings.word.weight.device

    @property
    def max_positions(self) -> int:
        """Longest sequence the network can take, in tokens."""
        return self.network.config.max_position_embeddings

    def run(
        self,
        encodings: Encodings,
        forward: Callable[[Batch, np.ndarray], Result],
        tokens_per_batch: int | None = None,
    ) -> Iterator[tuple[np.ndarray, Result]]:
        """Apply ``forward`` to the encodings, longest first, in packed batches under a token budget.

        On the CPU every core takes batches of its own: no core waits for another inside a batch, which short products
        would have it do most of the time. A single batch is shared by all cores.

        Args:
            forward: called without gradients with a batch and the indices of its sequences in ``encodings``; on the
                CPU from several threads at once.

        Yields:
            Indices and result for each batch, in order.
        """
        num_threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        if tokens_per_batch is None:
            budget = _TOKENS_PER_BATCH.get(self.device.type, _TOKENS_PER_BATCH["cpu"])
            share = -(-len(encodings.input_ids) // num_threads)
            tokens_per_batch = min(budget, max(share, _WORTH_A_CORE))
        batches = length_sorted_batches(encodings.seqlens, tokens_per_batch)
        ends = np.cumsum([len(batch) for batch in batches]).tolist()
        in_order = encodings.take(np.concatenate(batches)) if batches else encodings

        def work(number: int) -> Result:
            indices = batches[number]
            with torch.inference_mode():
                batch = collate(in_order.between(ends[number] - len(indices), ends[number]))
                return forward(batch.to(self.device), indices)

        num_threads = min(num_threads, len(batches))
        numbers = range(len(batches))
        results = map(work, numbers) if num_threads < 2 else _on_threads(work, numbers, num_threads)
        yield from zip(batches, results, strict=True)


def _on_threads(work: Callable[[Item], Result], items: Iterable[Item], num_threads: int) -> Iterator[Result]:
    """``map(work, items)`` with so many threads, each computing on one core, a few items ahead of the reader."""
    threads_before = torch.get_num_threads()
    waiting: deque[Future[Result]] = deque()
    # set_num_threads counts for the calling thread, and as the default of threads that start later.
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as executor:
        try:
            torch.set_num_threads(1)
            for item in items:
                waiting.append(executor.submit(work, item))
                if len(waiting) > 2 * num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            torch.set_num_threads(threads_before)


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
