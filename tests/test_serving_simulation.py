"""The queue and its jobs under a clock and a scheduler that are made from one seed, without threads.

Requests arrive, are canceled and exceed their time limits while others are computed. A failing seed is named, and
repeats.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bertkit.serving.answers import Answer, Answers
from bertkit.serving.encoded_jobs import Job, SharedEncoder
from bertkit.serving.shared_batches import SharedBatches
from bertkit.serving.text_jobs import TextJob
from random_models import our_model

from bertkit.serving import answers, shared_batches, text_jobs, ticket
from bertkit.serving.queue import SHORT_TOKENS
from bertkit.serving.refusals import Canceled, Overloaded, TimedOut
from bertkit.serving.settings import ServerSettings
from bertkit.serving.ticket import Ticket
from bertkit.transformer.interface import EncoderOutput

WORDS = "the of and cat dog sat mat run walk talk blue red green one two three".split()
BAD = "bad"
"""A text that cannot be computed."""

MOST_TOKENS = 96
"""Budget of a batch here."""

RUNNER = SimpleNamespace(device=torch.device("cpu"), tokens_per_batch=lambda num_tokens: MOST_TOKENS)
TOKENIZER = our_model("encoder", 3, hidden_size=20, num_attention_heads=4).tokenizer


class Scheduler:
    """Events in an order that is drawn, each some time after the one before."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now = 0.0
        self.depth = 0
        self._ready: list[Callable[[], object]] = []

    def add(self, event: Callable[[], object]) -> None:
        self._ready.append(event)

    def step(self) -> bool:
        """Run one event; False if there is none."""
        if not self._ready:
            return False
        self.now += self.draw.expovariate(100.0)
        self._ready.pop(self.draw.randrange(len(self._ready)))()
        return True

    def pause(self) -> None:
        """Other events happen while one is in progress, as on other cores."""
        if self.depth < 4:
            self.depth += 1
            for _ in range(self.draw.randrange(4)):
                self.step()
            self.depth -= 1


class Cores:
    """An executor whose tasks are events."""

    num_threads = 2

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._scheduler.add(lambda: work(*arguments))


class Loop:
    """The event loop, as far as answers need it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.call_soon_threadsafe = scheduler.add
        self.create_future = Future


@dataclass(frozen=True)
class Lengths:
    """A verb: the length of each text. Texts of a batch are distinct; a bad one fails its batch."""

    world: "World"
    name: str

    @property
    def runner(self) -> Any:
        return RUNNER

    @property
    def most_tokens(self) -> int:
        return 24

    def compute(self, items: Sequence[str], ticket: Ticket) -> list[int]:
        assert len(set(items)) == len(items) or ticket.client is not None, "a text is computed twice in a batch"
        self.world.scheduler.pause()
        if BAD in items:
            raise ValueError(f"text {items.index(BAD)}")
        return [len(item) for item in items]

    def __hash__(self) -> int:
        return hash(self.name)


class Encoder:
    """An encoder whose hidden states are the token ids. Sequences of a batch are distinct."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def __call__(self, batch: Any, **options: bool) -> EncoderOutput:
        rows = [tuple(part.tolist()) for part in batch.input_ids.split(batch.cu_seqlens.diff().tolist())]
        assert len(set(rows)) == len(rows), "a sequence is computed twice in a batch"
        self._world.scheduler.pause()
        return EncoderOutput(batch.input_ids[:, None].clone(), None, None)


class Request:
    """What a client asked for, and what became of it."""

    def __init__(self, world: "World", number: int) -> None:
        draw = world.scheduler.draw
        self.number, self.world, self.is_accepted = number, world, True
        self.ticket = Ticket(draw.randrange(4), deadline=world.scheduler.now + draw.expovariate(0.2))
        self.errors: list[type[BaseException]] = []
        size = draw.choice([1, 1, 1, 2, 5, 30])
        self.texts = [" ".join(draw.choices(WORDS, k=draw.choice([1, 2, 9]))) for _ in range(size)]
        if draw.random() < 0.3:
            self.texts = [self.texts[0]] * draw.choice([3, 60])
        if draw.random() < 0.1:
            self.texts[draw.randrange(len(self.texts))] = BAD

    def put(self) -> None:
        try:
            self.world.batches.put(self.job)
        except Overloaded:
            self.is_accepted = False

    def end(self, error: BaseException) -> None:
        """The client leaves, or its time is over."""
        if self.is_accepted and not self.job.is_done:
            self.errors.append(type(error))
            self.job.fail(error)
            self.world.batches.remove(self.job)

    def check(self) -> None:
        raise NotImplementedError


class TextRequest(Request):
    def __init__(self, world: "World", number: int) -> None:
        super().__init__(world, number)
        self.verb = Lengths(world, world.scheduler.draw.choice(["a", "b"]))
        self.answer = Answer(self.ticket, world.answers)
        self.job = TextJob(self.verb, self.texts, lambda results, ticket: results, self.answer, self._alone)

    def _alone(self) -> None:
        self.world.batches.remove(self.job)
        work = lambda ticket: self.verb.compute(self.texts, ticket)  # noqa: E731
        self.world.scheduler.add(lambda: self.answer.work(work))

    def end(self, error: BaseException) -> None:
        if self.is_accepted and not self.answer.is_ended:
            self.errors.append(type(error))
            self.answer.fail(error)
            self.world.batches.remove(self.job)

    def check(self) -> None:
        error = self.answer.future.exception()
        if self.errors:
            assert type(error) is self.errors[0]
        elif BAD in self.texts:
            assert str(error) == f"text {self.texts.index(BAD)}"
        else:
            assert self.answer.future.result() == b"[%s]" % b",".join(b"%d" % len(text) for text in self.texts)


class EncodedRequest(Request):
    def __init__(self, world: "World", number: int) -> None:
        super().__init__(world, number)
        encodings = TOKENIZER.encode_batch(self.texts, with_offsets=False)
        bounds = encodings.cu_seqlens.tolist()
        self.sums = [int(encodings.input_ids[a:b].sum()) for a, b in pairwise(bounds)]

        def forward(batch: Any, indices: Any) -> torch.Tensor:
            ids = world.runner.encoder(batch).last_hidden_state[:, 0]
            return torch.stack([part.sum() for part in ids.split(batch.cu_seqlens.diff().tolist())])

        self.job = Job(world.runner, encodings, forward, self.ticket)

    def check(self) -> None:
        assert self.job.done.is_set()
        if self.errors:
            assert type(self.job.error) is self.errors[0]
            return
        assert self.job.error is None
        rows = {int(i): int(row) for indices, part in self.job.results for i, row in zip(indices, part, strict=True)}
        assert [rows[index] for index in range(len(self.sums))] == self.sums


class World:
    """A server's queue, its clients and its cores."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.answers = Answers(Loop(self.scheduler))  # type: ignore[arg-type]
        self.batches = SharedBatches(ServerSettings(max_queue_tokens=self.scheduler.draw.choice([60, 10_000])))
        for name in ("cores", "passes", "_extra", "_all_cores"):
            setattr(self.batches, name, Cores(self.scheduler))
        self._compute, self.batches._compute = self.batches._compute, self.compute  # type: ignore[method-assign]
        self.runner = SimpleNamespace(**vars(RUNNER), encoder=SharedEncoder(Encoder(self)))  # type: ignore[arg-type]
        self.requests: list[Request] = []

    def compute(self, batch: Any, is_extra: bool, *counts: int) -> None:
        """Check the size of a batch, and compute it."""
        most = 2 * SHORT_TOKENS if is_extra else MOST_TOKENS
        assert batch.num_tokens <= most or len(batch.sequences) == 1, "a batch is larger than its budget"
        self._compute(batch, is_extra, *counts)

    def arrive(self, left: int) -> None:
        draw = self.scheduler.draw
        request = draw.choice([TextRequest, TextRequest, EncodedRequest])(self, left)
        self.requests.append(request)
        request.put()
        if draw.random() < 0.3:
            self.scheduler.add(lambda: request.end(Canceled("the client has gone")))
        if draw.random() < 0.2:
            self.scheduler.add(lambda: request.end(TimedOut("late", 1.0)))
        if left:
            self.scheduler.add(lambda: self.arrive(left - 1))

    def run(self) -> Counter[str]:
        """Run until nothing is left to do; what became of the requests."""
        for _ in range(3):
            self.scheduler.add(lambda: self.arrive(self.scheduler.draw.randrange(9)))
        batches = self.batches
        while self.scheduler.step():
            is_full = batches._num_running >= batches.cores.num_threads
            assert is_full or not batches.num_waiting, "texts wait while a core is free"
        for request in self.requests:
            if request.is_accepted:
                request.check()
        left = batches._queue
        assert (left.num_tokens, left.num_sequences, len(left._twins)) == (0, 0, 0)
        assert (batches._num_running, batches._num_long, batches._is_extra_running) == (0, 0, False)
        return Counter(
            "refused" if not each.is_accepted else "ended" if each.errors else "answered" for each in self.requests
        )


@pytest.fixture
def simulated_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Counter[str]]:
    """Runs the world of a seed."""
    clock = SimpleNamespace(now=lambda: 0.0)
    time = SimpleNamespace(perf_counter=lambda: clock.now())
    for module in (answers, shared_batches, text_jobs, ticket):
        monkeypatch.setattr(module, "time", time)
    for module in (answers, shared_batches):
        monkeypatch.setattr(module, "yield_to_event_loop", lambda: None)

    def run(seed: int) -> Counter[str]:
        world = World(seed)
        clock.now = lambda: world.scheduler.now
        try:
            return world.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error

    return run


def test_every_request_is_answered_or_refused_in_any_order_of_events(simulated_time):
    fates = sum((simulated_time(seed) for seed in range(300)), Counter())
    assert all(fates[fate] > 300 for fate in ("answered", "ended", "refused")), fates


def test_a_seed_repeats(simulated_time):
    assert simulated_time(7) == simulated_time(7)


@pytest.mark.slow
def test_thousands_of_orders_of_events(simulated_time):
    fates = sum((simulated_time(seed) for seed in range(300, 5_300)), Counter())
    assert fates["answered"] > 30_000, fates
