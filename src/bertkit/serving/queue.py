"""Queue of encoded sequences, from which batches for the encoder are taken.

Clients take turns of a few tokens, so that many texts of one client do not delay a single text of another. Equal
sequences that wait at the same time are computed once.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

_TURN_TOKENS = 64
"""Tokens that a client contributes to a batch per turn; at least one sequence."""

SHORT_TOKENS = 128
"""Maximum tokens of a short part, which may be computed while all cores work on long batches."""


class Part:
    """The sequences that a job waits for.

    Args:
        job: its ticket names the client that takes turns.
        call: a `calls.Run`, the sequences by index: their ``lengths``; their ``group``, equal for those that may share
            a batch; their ``key(index)``, equal for those with the same hidden states; and whether they ``is_long``
            in other ways than by tokens.
        wanted: indices, each once.
    """

    def __init__(self, job: Any, call: Any, wanted: list[int]) -> None:
        self.job, self.call = job, call
        self.waiting = set(wanted)
        self.num_tokens = sum(call.lengths[index] for index in wanted)  # of those that wait
        self._order = deque(sorted(wanted, key=lambda index: -call.lengths[index]))  # the longest first

    def next(self) -> int | None:
        """The next sequence; those that were taken with an equal one of another part are forgotten."""
        while self._order and self._order[0] not in self.waiting:
            self._order.popleft()
        return self._order[0] if self._order else None


@dataclass
class TakenBatch:
    """Distinct sequences for one run of an encoder, and the parts that wait for them."""

    sequences: list[tuple[Part, int]] = field(default_factory=list)
    waiting: list[tuple[Part, int, int]] = field(default_factory=list)  # (part, index, number in sequences)
    num_tokens: int = 0
    num_tokens_waiting: int = 0  # of all sequences that wait, equal ones included

    def add(self, twins: list[tuple[Part, int]], num_tokens: int) -> None:
        """Add a sequence, for all parts that wait for an equal one."""
        self.waiting += [(part, index, len(self.sequences)) for part, index in twins]
        self.sequences.append(twins[0])
        self.num_tokens += num_tokens
        self.num_tokens_waiting += num_tokens * len(twins)


class Queue:
    """Parts of all clients. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._parts: OrderedDict[Hashable, deque[Part]] = OrderedDict()  # by client; the next to take a turn first
        self._twins: dict[Hashable, list[tuple[Part, int]]] = {}
        self.num_tokens = 0
        self.num_sequences = 0

    def put(self, part: Part) -> None:
        """Add a part after the others of its client."""
        self._parts.setdefault(part.job.ticket.client, deque()).append(part)
        for index in part.waiting:
            self._twins.setdefault(part.call.key(index), []).append((part, index))
        self.num_tokens += part.num_tokens
        self.num_sequences += len(part.waiting)

    def remove(self, part: Part) -> None:
        """Remove what is left of a part."""
        for index in list(part.waiting):
            twins = self._twins.pop(part.call.key(index))
            if others := [twin for twin in twins if twin != (part, index)]:
                self._twins[part.call.key(index)] = others
            self._leave(part, index)

    def take(self, budget: Callable[[Any], int], *, short_only: bool = False) -> TakenBatch:
        """Take sequences for one run of an encoder from the clients in turn; empty if none waits.

        Args:
            budget: maximum number of tokens, by the first call; a single sequence may exceed it.
            short_only: skip parts with more than SHORT_TOKENS, or otherwise long ones.
        """
        taken, most, group = TakenBatch(), 0, None
        turns = deque(self._parts)
        while turns:
            client = turns.popleft()
            parts = self._parts[client]
            while parts and parts[0].next() is None:
                parts.popleft()
            if not parts:
                del self._parts[client]
                continue
            part = parts[0]
            is_short = part.num_tokens <= SHORT_TOKENS and not part.call.is_long
            if (group is not None and part.call.group != group) or (short_only and not is_short):
                continue  # the client keeps its turn for the next batch
            if group is None:
                group, most = part.call.group, budget(part.call)
            num_before = len(taken.sequences)
            has_room = self._take_turn(part, taken, most)
            if len(taken.sequences) > num_before:  # else it keeps its turn for the next batch, too
                self._parts.move_to_end(client)
            if not has_room:
                break
            turns.append(client)
        return taken

    def _take_turn(self, part: Part, taken: TakenBatch, most: int) -> bool:
        """Add sequences of a part; False if the batch is full."""
        end = taken.num_tokens + _TURN_TOKENS
        while (index := part.next()) is not None:
            length = part.call.lengths[index]
            if taken.sequences and taken.num_tokens + length > most:
                return False
            twins = self._twins.pop(part.call.key(index))
            for twin in twins:
                self._leave(*twin)
            taken.add(twins, length)
            if taken.num_tokens >= end:
                break
        return taken.num_tokens < most

    def _leave(self, part: Part, index: int) -> None:
        length = part.call.lengths[index]
        part.waiting.remove(index)
        part.num_tokens -= length
        self.num_tokens -= length
        self.num_sequences -= 1
