"""The engine, and a store, under a clock, a scheduler and a disk that are made from one seed, without threads.

Requests arrive, are canceled, exceed their time limits and have answers that are read slowly, while others are
computed. In some worlds they also read a store, whose writer finds no room on the disk or is killed meanwhile. A
failing seed is named, and repeats.
"""

import gc
import multiprocessing
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from simulated_store import SimulatedStore

from bertkit.errors import DataError
from bertkit.inference import InferenceReport
from bertkit.serving import calls, engine, jobs, shared_run, ticket
from bertkit.serving.calls import Call, Run, current_call
from bertkit.serving.engine import Engine
from bertkit.serving.jobs import Job, Verb
from bertkit.serving.metrics import Metrics
from bertkit.serving.queue import TakenBatch
from bertkit.serving.refusals import Canceled, InvalidRequest, Overloaded, TimedOut
from bertkit.serving.served_models import ServedModels
from bertkit.serving.service import Service
from bertkit.serving.settings import ServerSettings
from bertkit.serving.shared_run import SharedEncoder
from bertkit.serving.ticket import Answer, Answers, Ticket
from bertkit.tokenizer import Encodings
from bertkit.transformer.interface import EncoderOutput

BAD, BROKEN, PANIC = "bad", "broken", "panic"
"""Texts that cannot be encoded, whose results cannot be computed, and for which a foreign library panics."""

NUM_CLIENTS = 3

MOST_TOKENS = 20
"""Budget of a batch here."""

WINDOW = 7
"""Most tokens of a sequence; a longer text has several."""

TEXTS = ["a", "b", "A", "cc", "dd", "cccc", "abcdefg", "abcdefgabcdefgab", "ab" * 14, BAD, BROKEN]
"""A text is encoded as its letters in lower case: equal sequences of different texts are there."""


class Panic(BaseException):
    """Of a foreign library, whatever it computes."""


@lru_cache(4_000)
def encoded(texts: tuple[str, ...]) -> Encodings:
    """Windows of letters."""
    windows = [
        (number, text[at : at + WINDOW].lower())
        for number, text in enumerate(texts)
        for at in range(0, len(text), WINDOW)
    ]
    ids = np.frombuffer("".join(window for _, window in windows).encode(), np.uint8).astype(np.int64)
    lengths = np.array([len(window) for _, window in windows])
    return SimpleEncodings(ids, lengths, np.array([number for number, _ in windows]))


@cache
def settings(is_short: bool, has_small_answers: bool) -> ServerSettings:
    """Of a server whose queue is short, or which sends small answers only."""
    return ServerSettings(
        max_queue_tokens=30 if is_short else 10_000, max_answer_bytes=100 if has_small_answers else 9_000
    )


@cache
def windows(text: str) -> frozenset[bytes]:
    """The sequences of a text."""
    return frozenset(text[at : at + WINDOW].lower().encode() for at in range(0, len(text), WINDOW))


class SimpleEncodings:
    """What the engine needs of `Encodings`."""

    def __init__(self, input_ids: np.ndarray, seqlens: np.ndarray, text_index: np.ndarray) -> None:
        self.input_ids, self.seqlens, self.text_index = input_ids, seqlens, text_index
        self.cu_seqlens = np.array([0, *accumulate(seqlens.tolist())])

    token_type_ids = property(lambda self: self.input_ids)
    num_tokens_cut = num_unknown = property(lambda self: self.are_empty())

    def __len__(self) -> int:
        return len(self.seqlens)

    def are_empty(self) -> np.ndarray:
        return self.seqlens == 0

    def take(self, indices: np.ndarray) -> "SimpleEncodings":
        parts = [self.input_ids[self.cu_seqlens[i] : self.cu_seqlens[i + 1]] for i in indices]
        return SimpleEncodings(np.concatenate(parts), self.seqlens[indices], self.text_index[indices])


class Packed:
    """What the engine needs of `Batch`."""

    is_in_arrays = True

    def __init__(self, sequences: Any) -> None:
        if isinstance(sequences, SimpleEncodings):
            ids, self.lengths = sequences.input_ids, sequences.seqlens.tolist()
        else:
            ids = np.concatenate([each.input_ids for each in sequences])
            self.lengths = list(map(len, sequences))
        self.input_ids, self.bounds = ids, [0, *accumulate(self.lengths)]

    @property
    def cu_seqlens(self) -> np.ndarray:
        return np.array(self.bounds)

    def sequences(self) -> set[bytes]:
        """The letters of each sequence, of those that are equal once."""
        letters = bytes(self.input_ids.tolist())
        return {letters[start:end] for start, end in pairwise(self.bounds)}

    def to(self, device: Any) -> "Packed":
        return self


class Scheduler:
    """Events in an order that is drawn, each some time after the one before."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now = 0.0
        self.depth = 0
        self.wanted: set[bytes] | None = None  # see `World.compute`
        self.computed = set[tuple[Packed, bool]]()  # batches, and whether with an option
        self._ready: list[Callable[[], object]] = []

    def add(self, event: Callable[[], object]) -> None:
        self._ready.append(event)

    def step(self) -> bool:
        """Run one event; False if there is none."""
        if not self._ready:
            return False
        self.now += self.draw.random() / 50
        self._ready.pop(int(self.draw.random() * len(self._ready)))()
        return True

    def pause(self) -> None:
        """Other events happen while one is in progress, as on other cores."""
        num_events = int(self.draw.random() * 4) if self.depth < 4 else 0
        if num_events and self._ready:
            self.depth += 1
            threads = [vars(calls._thread), vars(shared_run._thread)]
            states = [dict(thread) for thread in threads]
            for thread in threads:
                thread.clear()
            wanted, self.wanted = self.wanted, None
            for _ in range(num_events):
                self.step()
            for thread, state in zip(threads, states, strict=True):
                thread.clear()
                thread.update(state)
            self.wanted = wanted
            self.depth -= 1


class Cores:
    """An executor whose tasks are events."""

    num_threads = 2

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._scheduler.add(lambda: work(*arguments))


class Reply:
    """A future without locks.

    Attributes:
        on_done: called when it has a result or an error.
    """

    error: BaseException | None = None
    on_done: Callable[[], object] | None = None

    def __init__(self) -> None:
        self._result: bytes | None = None

    def done(self) -> bool:
        return self._result is not None or self.error is not None

    def result(self) -> bytes:
        if self.error is not None:
            raise self.error
        assert self._result is not None
        return self._result

    def set_result(self, result: bytes) -> None:
        self._set(result, None)

    def set_exception(self, error: BaseException) -> None:
        self._set(None, error)

    def _set(self, result: bytes | None, error: BaseException | None) -> None:
        assert not self.done(), "a request has two answers"
        self._result, self.error = result, error
        if self.on_done is not None:
            self.on_done()


class Loop:
    """The event loop, as far as answers need it."""

    create_future = Reply

    def __init__(self, scheduler: Scheduler) -> None:
        self.call_soon_threadsafe = scheduler.add


def sums(world: "World", number: int, bytes_per_token: int) -> Verb:
    """A verb: the sum of the letters of each text, and of a number for each letter, of one of two encoders."""

    def compute(items: Sequence[str], report: InferenceReport) -> list[int]:
        return sums_of(world, items, report, world.runners[number // 2], with_pooled=number == 1)

    key = world, number, bytes_per_token
    return Verb(compute, key, lambda item: 1 + len(item) // 2, bytes_per_token=bytes_per_token)


def sums_of(
    world: "World",
    items: Sequence[str],
    report: InferenceReport,
    runner: SimpleNamespace,
    *,
    with_pooled: bool = False,
    computed: set[tuple[int, int]] | None = None,
) -> list[int]:
    """The sum of the letters of each text, from a run of an encoder.

    Args:
        computed: of a verb whose rows are kept until its end: the sequences of such runs whose rows were computed,
            each with the first text of its run.
    """
    encodings, call = encoded(tuple(items)), current_call()
    assert call is not None
    if not call._has_run:
        world.expect(not any(job.is_done for job in call.jobs), "the texts of a request that has ended are encoded")
        has_error = any(job._error is not None and job._error[0] < first for job, first, _ in call._slices)
        world.expect(not has_error, "the texts after one with an error are encoded")
    world.scheduler.pause()
    if BAD in items:
        raise DataError(f"text {report.num_texts + items.index(BAD)}")

    def forward(batch: Packed, indices: np.ndarray) -> np.ndarray:
        is_small = sum(batch.lengths) <= MOST_TOKENS or len(indices) == 1
        world.expect(is_small, "rows of too many tokens at a time")
        hidden = runner.encoder(batch, with_pooled=with_pooled).last_hidden_state
        if computed is not None:
            rows = {(report.num_texts, index) for index in indices.tolist()}
            world.expect(computed.isdisjoint(rows), "rows of a whole verb are computed twice")
            computed.update(rows)
        return np.add.reduceat(hidden, batch.bounds[:-1])

    at_once = partial(forward, Packed(encodings), np.arange(len(encodings)))
    sums = call.run(runner, encodings, forward, None, at_once)[:, 0]
    if BROKEN in items:
        raise FloatingPointError("not finite")
    if PANIC in items:
        raise Panic
    results = [0] * len(items)
    for number, part in zip(encodings.text_index.tolist(), sums.tolist(), strict=True):
        results[number] += part
    return results


class Steps:
    """What is computed in several steps, such as a generated text: how many there were."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps, self.num_done = num_steps, 0

    def num_left(self) -> int:
        return self.num_steps - self.num_done + 1

    def next(self) -> int | None:
        self.num_done += 1
        return self.num_steps if self.num_done == self.num_steps else None


class Encoder:
    """An encoder whose hidden states are the token ids and a number, and with an option one more. Sequences of a batch
    are distinct, and of requests that had not ended when the batch began."""

    def __init__(self, world: "World", number: int) -> None:
        self._world, self._number = world, number

    def __call__(self, batch: Packed, *, with_pooled: bool, **options: bool) -> EncoderOutput:
        sequences, world = batch.sequences(), self._world
        wanted = world.wanted() if world.scheduler.wanted is None else world.scheduler.wanted
        world.expect(len(sequences) == len(batch.lengths), "a sequence is computed twice in a batch")
        is_small = len(batch.input_ids) <= MOST_TOKENS or len(sequences) == 1
        world.expect(is_small, "a batch is larger than its budget")
        world.expect(sequences <= wanted, "a sequence that no request waits for is computed")
        world.expect((batch, with_pooled) not in world.scheduler.computed, "a batch is computed twice")
        world.scheduler.computed.add((batch, with_pooled))
        world.scheduler.pause()
        return EncoderOutput((batch.input_ids + self._number + with_pooled)[:, None], None, None)


class Request:
    """What a client asked for, and what became of it."""

    def __init__(self, world: "World") -> None:
        draw = world.scheduler.draw
        self.world, self.fate = world, "answered"
        self.ticket = Ticket(int(draw.random() * NUM_CLIENTS), deadline=world.scheduler.now + 9)
        self.errors: list[type[BaseException]] = []
        self.computed = set[tuple[int, int]](), set[tuple[int, int]]()  # by the two runs of a whole verb
        self.ended = set[int]()  # the first items of pieces of a whole verb
        self.texts = draw.choices(TEXTS[: 9 if draw.random() < 0.6 else None], k=draw.choice((1, 1, 2, 3, 8)))
        if draw.random() < 0.3:
            self.texts = self.texts[:1] * draw.choice((3, 12))
        if draw.random() < 0.02:
            self.texts[-1] = PANIC
        number = int(draw.random() * 3)
        self.verb = sums(world, number, bytes_per_token=draw.choice((0, 0, 3)))
        self.answer = Answer(self.ticket, world.answers)
        self.reply: Any = self.answer.future
        self.reply.on_done = lambda: world.scheduler.add(self.leave)
        self.ticket.make_room = world.service.reserve
        items: list[Any] = self.texts
        self.expected = [sum(text.lower().encode()) + number * len(text) for text in self.texts]
        self.num_tokens = sum(map(len, self.texts))
        if draw.random() < 0.15:  # two runs, of which the second one depends on the first
            self.verb = Verb(self.twice, likely_tokens=len, is_long=draw.random() < 0.5)
            self.num_tokens *= 2
            self.expected = [2 * (sum(text.lower().encode()) + len(text)) for text in self.texts]
        elif draw.random() < 0.15:
            self.verb = Verb(self.step, likely_tokens=Steps.num_left, is_long=True)
            self.num_tokens, self.texts = 0, []
            items = [Steps(draw.choice((1, 2, 9)))]
            self.expected = [items[0].num_steps]
        self.job = Job(self.verb, items, self.finish, self.answer)

    def twice(self, items: Sequence[str], report: InferenceReport) -> list[int]:
        runs = [
            sums_of(self.world, items, report, runner, computed=computed)
            for runner, computed in zip(self.world.runners, self.computed, strict=True)
        ]
        self.end_piece(report.num_texts)
        return [one + other for one, other in zip(*runs, strict=True)]

    def step(self, items: Sequence[Steps], report: InferenceReport) -> list[int] | None:
        self.world.expect(not self.job.is_done, "a step of a request that has ended is computed")
        self.world.scheduler.pause()
        number = items[0].next()
        if number is None:
            return None
        self.end_piece(report.num_texts)
        return [number]

    def end_piece(self, first: int) -> None:
        """Some items of a whole verb have their results."""
        self.world.expect(first not in self.ended, "a whole verb is computed twice")
        self.ended.add(first)

    def finish(self, results: list[int], ticket: Ticket) -> list[int]:
        """The answer, for which the request may read the store while others go on."""
        self.world.expect(not self.job.is_done, "an answer is made for a request that has ended")
        if self.world.store is not None:
            self.world.store.read(self.world.scheduler.pause)
        return results

    def put(self) -> None:
        try:
            self.world.engine.put(self.job)
        except Overloaded:
            self.fate = "refused"
            self.ticket.cancel()
            self.leave()

    def end(self, error: BaseException) -> None:
        """The client closes the connection, or its time is over."""
        if self.fate == "answered" and not self.answer.is_ended:
            self.errors.append(type(error))
            self.answer.fail(error)

    def leave(self) -> None:
        """The request has its answer, or none is needed: see `Service.respond`."""
        self.world.left.add(self.job)
        self.world.engine.remove(self.job)
        if self.ticket.is_canceled:
            self.world.service.release(self.ticket)
        else:
            self.world.scheduler.add(self.read)

    def read(self) -> None:
        """The client has read the answer."""
        service = self.world.service
        assert service._num_answer_bytes <= service.settings.max_answer_bytes, "answers take too much memory"
        size = self.verb.bytes_per_token * self.num_tokens
        assert self.reply.error or self.ticket.num_answer_bytes == size, "an answer has another size than its room"
        service.release(self.ticket)

    def check(self) -> None:
        if self.fate == "refused":
            return
        assert self.reply.done(), "a request has no answer"
        error = self.reply.error
        if error is not None:
            self.fate = "ended" if self.errors else type(error).__name__
        if self.errors:
            assert type(error) is self.errors[0]
        elif isinstance(error, InvalidRequest | Overloaded):
            assert self.verb.bytes_per_token, "an answer without a limit is refused"
        elif isinstance(error, Panic):
            assert any(PANIC in request.texts for request in self.world.requests)
        elif isinstance(error, FloatingPointError):
            assert BROKEN in self.texts
        elif BAD in self.texts:
            assert str(error) == f"text {self.texts.index(BAD)}", "another text than the first wrong one is named"
        else:
            assert BROKEN not in self.texts and PANIC not in self.texts
            assert orjson.loads(self.reply.result()) == self.expected
            assert self.ticket.num_tokens == self.num_tokens


class WatchedEngine(Engine):
    """An engine in which nothing waits for requests that have left, and no client waits while others have a second
    turn."""

    def __init__(self, world: "World", settings: ServerSettings) -> None:
        super().__init__(settings)
        self._world = world
        self._missed: tuple[Counter[Any], Counter[Any]] = Counter(), Counter()  # turns, to be encoded and computed

    def _wait(self, calls: Iterable[Call]) -> None:
        super()._wait(calls)
        self._expect()

    def remove(self, job: Job) -> None:
        super().remove(job)
        for missed in self._missed:
            del missed[job.ticket.client]  # its next job can be the last in turn
        self._expect()

    def _taken_slices(self, *, short_only: bool) -> list[Any]:
        waiting = {client for client, jobs in self._arrived.items() if jobs}
        slices = super()._taken_slices(short_only=short_only)
        self._note_turns(self._missed[0], waiting, {job.ticket.client for job, _, _ in slices}, short_only)
        return slices

    def _taken_batch(self, is_extra: bool) -> TakenBatch:
        waiting = {client for client, parts in self._queue._parts.items() if any(part.waiting for part in parts)}
        batch = super()._taken_batch(is_extra)
        self._note_turns(self._missed[1], waiting, {part.job.ticket.client for part, _, _ in batch.waiting}, is_extra)
        return batch

    def _note_turns(self, missed: Counter[Any], waiting: set[Any], served: set[Any], is_extra: bool) -> None:
        """Count turns of others that a client has waited for: those on the extra thread are for short texts only."""
        for client in {*missed, *served} - (waiting - served):
            del missed[client]
        missed.update(waiting - served if served and not is_extra else ())
        self._world.expect(max(missed.values(), default=0) < NUM_CLIENTS, "a client waits while others have two turns")

    def _may_run(self, work: engine._Work, run: Run) -> bool:
        may_run = super()._may_run(work, run)
        self._world.expect(not (may_run and self._queue.num_sequences), "a request is computed before those that wait")
        return may_run

    def _expect(self) -> None:
        left = self._world.left
        if not left or not self.num_waiting:
            return
        is_wanted = all(left.isdisjoint(jobs) for jobs in self._arrived.values()) and not any(
            part.job in left for twins in self._queue._twins.values() for part, _ in twins
        )
        self._world.expect(is_wanted, "the work of a client that left waits")


class World:
    """A server's queue, its clients and its cores.

    Args:
        make_store: from the draw of the world to a store that it reads, and that another process writes.
    """

    def __init__(
        self, seed: int, make_store: Callable[[random.Random], SimulatedStore | None] = lambda draw: None
    ) -> None:
        self.scheduler = Scheduler(seed)
        self.store = make_store(self.scheduler.draw)
        draw = self.scheduler.draw
        self.answers = Answers(Loop(self.scheduler))  # type: ignore[arg-type]
        self.faults: list[str] = []  # see `expect`
        self.left: set[Job] = set()  # of requests that have left
        self.engine = WatchedEngine(self, settings(draw.random() < 0.5, draw.random() < 0.5))
        for name in ("cores", "_extra", "all_cores"):
            setattr(self.engine, name, Cores(self.scheduler))
        self.service = Service(MODELS, self.engine, METRICS)
        encoders: list[Any] = [SharedEncoder(Encoder(self, number)) for number in (0, 2)]  # type: ignore[arg-type]
        self.runners = [
            SimpleNamespace(
                device=CPU, tokens_per_batch=lambda num_tokens: MOST_TOKENS, encoder=encoder, collate=Packed
            )
            for encoder in encoders
        ]
        self.requests: list[Request] = []

    def expect(self, is_right: bool, fault: str) -> None:
        """Note a fault: an error would become that of a request, which may have ended."""
        if not is_right:
            self.faults.append(fault)

    def wanted(self) -> set[bytes]:
        """The sequences of requests that have not ended."""
        items = [item for request in self.requests if not request.job.is_done for item in request.job.items]
        texts = {item for item in items if isinstance(item, str)}
        return set().union(*map(windows, texts))

    def compute(self, batch: TakenBatch, most: int) -> tuple[list[Answer], list[Call]]:
        """`calls.compute`, which knows the requests that have ended when it begins."""
        self.scheduler.wanted = self.wanted()
        try:
            ended = calls.compute(batch, most)
        finally:
            self.scheduler.wanted = None
        for run in {part.call for part, _, _ in batch.waiting} if not self.scheduler.depth else ():
            has_error = not {BROKEN, PANIC}.isdisjoint(run.call.items)
            is_kept = any(not run._num_missing[run.unit_of[index]] for index in run._rows)
            self.expect(has_error or not is_kept, "rows are kept after their results")
        return ended

    def arrive(self, left: int) -> None:
        add, draw = self.scheduler.add, self.scheduler.draw
        request = Request(self)
        self.requests.append(request)
        request.put()
        chance = draw.random()
        if chance < 0.2:
            add(lambda: request.end(Canceled("the client has gone")))
        elif chance < 0.4:
            add(lambda: request.end(TimedOut("late", 1.0)))
        if left:
            add(lambda: self.arrive(left - 1))
        if self.store is not None:
            add(self.store.change)

    def run(self) -> Counter[str]:
        """Run until nothing is left to do; what became of the requests."""
        most = 12 if self.scheduler.draw.random() < 0.1 else 2  # some servers are busy
        for _ in range(2):
            self.scheduler.add(lambda: self.arrive(int(self.scheduler.draw.random() * most)))
        one, steps = self.engine, 0
        while self.scheduler.step():
            steps += 1
            assert steps < 5_000, "a request waits for ever"
            is_full = one._num_running >= one.cores.num_threads
            assert is_full or not one.num_waiting, "texts wait while a core is free"
            assert not self.faults, self.faults[0]
        for request in self.requests:
            request.check()
        left = one._queue
        assert (one.num_waiting, left.num_tokens, len(left._twins), one.num_tokens_waiting) == (0, 0, 0, 0)
        assert (one._num_running, one._num_long, one._is_extra_running) == (0, 0, False)
        assert self.service._num_answer_bytes == 0, "memory of an answer is not given back"
        return Counter(request.fate for request in self.requests)


CPU = SimpleNamespace(type="cpu")
FATES = "answered ended refused InvalidRequest DataError FloatingPointError Panic".split()
MODELS, METRICS = ServedModels([SimpleNamespace(name="sums")]), Metrics()  # type: ignore[list-item]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Counter[str]]:
    """Runs the world of a seed."""
    clock = SimpleNamespace(now=lambda: 0.0)
    time = SimpleNamespace(perf_counter=lambda: clock.now())
    for module in (calls, engine, jobs, ticket):
        monkeypatch.setattr(module, "time", time)
    for name in ("Executor", "ThreadPoolExecutor"):
        monkeypatch.setattr(engine, name, lambda *_: None)  # no threads
    monkeypatch.setattr(engine, "yield_to_event_loop", lambda: None)
    monkeypatch.setattr(engine, "_SMALL_BATCH_TOKENS", 5)
    monkeypatch.setattr(engine, "_LONG_TOKENS", 12)
    monkeypatch.setattr(engine, "_MOST_ITEMS", 3)
    monkeypatch.setattr("bertkit.serving.queue._TURN_TOKENS", 12)
    monkeypatch.setattr(engine, "inferred", lambda work: work())
    monkeypatch.setattr(engine, "compute", lambda *given: clock.compute(*given))
    monkeypatch.setattr("bertkit.serving.service._SMALL_ANSWER_BYTES", 0)

    def run(seed: int, *make_store: Callable[[random.Random], SimulatedStore]) -> Counter[str]:
        world = World(seed, *make_store)
        clock.now, clock.compute = lambda: world.scheduler.now, world.compute
        try:
            return world.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error

    return run


def test_every_request_is_answered_or_refused_in_any_order_of_events(simulated):
    fates = sum(map(simulated, range(2_000)), Counter())
    assert fates["answered"] > 2_000 and all(fates[fate] > 20 for fate in FATES), fates


def test_a_seed_repeats(simulated):
    assert simulated(7) == simulated(7)


def with_stores(simulated: Any, seeds: Iterable[int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What became of requests and of changes of the stores that they read, in worlds that share seeds, clock and
    events."""
    fates = Counter[str]()
    for seed in seeds:
        stores: list[SimulatedStore] = []
        with monkeypatch.context() as patch:
            make_store = partial(SimulatedStore, folder=folder / str(seed) / "store", patch=patch)
            fates += simulated(seed, lambda draw: stores.append(make_store(draw)) or stores[-1])  # noqa: B023
        fates += stores[0].fates
        stores[0].close()
    return fates


def test_requests_read_whole_commits_of_a_store_whose_writer_is_killed(simulated, tmp_path, monkeypatch):
    fates = with_stores(simulated, range(12), tmp_path, monkeypatch)
    assert all(fates[fate] > 2 for fate in ("answered", "read", "committed", "full", "killed")), fates


@pytest.mark.full
def test_a_hundred_thousand_orders_of_events(simulated, tmp_path, monkeypatch):
    """In as many processes as there are cores, which have a copy of the patched engine."""
    num_processes = len(os.sched_getaffinity(0))

    def part(number: int, sender: Any) -> None:
        gc.freeze()  # its searches leave out what is here already
        fates = Counter[str]()
        try:
            fates = sum(map(simulated, range(2_000 + number, 101_600, num_processes)), fates)
            fates += with_stores(simulated, range(101_600 + number, 102_000, num_processes), tmp_path, monkeypatch)
            sender.send(fates)
        except BaseException as error:
            sender.send(repr(error))

    context = multiprocessing.get_context("fork")
    receivers = []
    for number in range(num_processes):
        receiver, sender = context.Pipe(duplex=False)
        context.Process(target=part, args=(number, sender)).start()
        sender.close()  # so that the end of a process is the end of what comes from it
        receivers.append(receiver)
    parts = [receiver.recv() for receiver in receivers]
    assert all(isinstance(fates, Counter) for fates in parts), parts
    fates = sum(parts, Counter())
    assert fates["answered"] > 100_000 and fates["killed"] > 10, fates
