"""Work side by side on every core, as in inference: one batch a core, each computed by one thread."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_every_core(work: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> Iterator[Result]:
    """The results of ``work(item)`` in the items' order; on a GPU one after the other.

    While this runs torch is told to use one thread for each item; a program should compute nothing else meanwhile.
    """
    if device.type != "cpu":
        yield from map(work, items)
        return
    threads_before = torch.get_num_threads()
    num_threads = max(1, min(threads_before, len(items)))
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as executor:
        try:
            torch.set_num_threads(1)
            yield from executor.map(work, items)
        finally:
            torch.set_num_threads(threads_before)
