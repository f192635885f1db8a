"""Jobs: what one request asks of a model, computed a piece at a time with those of other requests."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.inference import InferenceReport
from bertkit.serving.queue import Part
from bertkit.serving.ticket import Answer, Ticket

Results = Sequence[Any] | np.ndarray
Finish = Callable[[Any, Ticket], Any]
"""From the results of a request's items, in order, to its answer."""


def likely_tokens(item: Any, most: int | None = None) -> int:
    """Number of tokens of a text, or of texts together, that are cut to ``most``, if it is given."""
    texts = [item] if isinstance(item, str) else map(str, item)
    number = 2 + sum(len(text) // 4 + 1 if text.isascii() else len(text) for text in texts)
    return number if most is None else min(number, most)


@dataclass(frozen=True)
class Verb:
    """A method of a model with its options.

    Attributes:
        compute: from items to the result of each; None if a step was computed, and others are left. An error that names
            an item adds the report's ``num_texts`` to its index. It is called again after each run of an encoder that
            waited, with rows in place of the run, so it must not change anything before one.
        key: equal for verbs whose items are computed together, whoever asked for them, with one run of an encoder, and
            each as soon as it has rows. None: the items of one request, up to a number at a time, are computed by one
            call, with any number of runs.
        likely_tokens: number of tokens of an item, before it is encoded.
        is_long: whether it takes long for few tokens: short texts are computed beside it.
        is_wide: whether it uses all cores if no other request needs one.
        bytes_per_token: about the size of an answer, if it is far larger than its request, else 0.
    """

    compute: Callable[[Sequence[Any], InferenceReport], Results | None]
    key: Hashable = None
    likely_tokens: Callable[[Any], int] = likely_tokens
    is_long: bool = False
    is_wide: bool = False
    bytes_per_token: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the items belong to one request."""
        return self.key is None


class Job:
    """The items of a request for a verb; unless the verb is whole, equal ones are computed once.

    Args:
        finish: called on the thread that computed the last item.
    """

    def __init__(self, verb: Verb, items: Sequence[Any], finish: Finish, outcome: Answer) -> None:
        self.verb, self.outcome, self.ticket = verb, outcome, outcome.ticket
        self.positions: list[int] = []  # of distinct items
        self.number_at: list[int] = []  # of each position: the number of its item
        numbers: dict[Hashable, int] = {}
        for position, item in enumerate(items):
            key = item if isinstance(item, str | tuple) and not verb.is_whole else (id(item), position)
            self.number_at.append(numbers.setdefault(key, len(numbers)))
            if len(numbers) > len(self.positions):
                self.positions.append(position)
        self.items = [items[position] for position in self.positions]
        self.copies = Counter(self.number_at)  # by number
        self.likely_tokens = [verb.likely_tokens(item) for item in self.items]
        self.num_encoded = 0  # items
        self._begun = set[int]()  # the first items of pieces whose errors are not known yet
        self._error: tuple[int, Exception] | None = None  # of a piece, with its first item
        self.parts: list[Part] = []
        self.with_room = set[int]()  # items for whose results there is room
        self._finish, self._lock = finish, threading.Lock()
        self._results: list[Any] = [None] * len(self.items)
        self._missing = set(range(len(self.items)))
        self._joined, self._started = time.perf_counter(), 0.0

    @property
    def is_done(self) -> bool:
        return self.outcome.is_ended or self.ticket.is_canceled

    @property
    def kind(self) -> Hashable:
        """Equal for jobs that share calls: texts and pairs do not."""
        return self.verb.key or id(self), type(self.items[0])

    def start(self) -> None:
        """Note the time at which a core begins with it."""
        self._started = self._started or time.perf_counter()

    def begin(self, first: int) -> None:
        """Note that a core begins with a piece, of items from a number on; the pieces begin in order."""
        with self._lock:
            self._begun.add(first)

    def is_wanted(self, first: int) -> bool:
        """Whether a piece is to be computed: neither has the job ended, nor has an earlier piece an error."""
        return not self.is_done and (self._error is None or first < self._error[0])

    def settle(self, first: int, error: Exception | None = None) -> None:
        """Note that a piece has an error, or will have none. The job ends with the error of the first piece that has
        one, whichever is computed first."""
        with self._lock:
            self._begun.discard(first)
            if error is not None and (self._error is None or first < self._error[0]):
                self._error = first, error
            if self._error is None or any(other < self._error[0] for other in self._begun):
                return
            error = self._error[1]
        self.outcome.fail(error)

    def resume(self, first: int) -> None:
        """The items from a number on are to be computed again, with the tokens that are left of each."""
        self.likely_tokens[first:] = map(self.verb.likely_tokens, self.items[first:])
        self.num_encoded = first

    def store(self, number: int, result: Any, counts: Sequence[int]) -> bool:
        """Store the result of an item, and count its tokens; True if it was the last one that was missing."""
        num_tokens, num_cut, num_unknown, is_empty = counts
        ticket, copies = self.ticket, self.copies[number]
        with self._lock:
            if number not in self._missing:
                return False
            self._missing.remove(number)
            self._results[number] = result
            ticket.num_tokens += copies * num_tokens
            ticket.num_inputs_cut += copies * (num_cut > 0)
            ticket.num_tokens_cut += copies * num_cut
            ticket.num_tokens_unknown += copies * num_unknown
            ticket.num_inputs_empty += copies * (is_empty > 0)
            return not self._missing

    def end(self) -> None:
        """Make the answer of the results."""
        ticket, began = self.ticket, self._started
        ticket.queue_seconds += began - self._joined
        ticket.inference_seconds += max(0.0, time.perf_counter() - began - ticket.tokenization_seconds)
        results = [self._results[number] for number in self.number_at]
        self.outcome.end(lambda: self._finish(results, ticket))
