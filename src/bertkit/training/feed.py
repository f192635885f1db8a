"""Interface of what the training loop reads."""

from typing import Any, Protocol


class Feed(Protocol):
    """Batches by position. The content of a batch may depend on the ``progress`` of the run, from 0 to 1."""

    def batch(self, position: int, progress: float) -> Any:
        """This rank's share of the batch at a position: has ``num_tokens``, ``split(num_parts, most_tokens)`` and
        ``to(device)``."""

    def next_position(self, position: int, progress: float) -> int:
        """The position after this batch."""

    def facts(self, position: int, progress: float) -> dict[str, float]:
        """Values to log for a position, such as "epoch"."""
