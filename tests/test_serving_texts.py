"""Texts of several requests that are tokenized and computed by one call, without a server."""

import asyncio
import threading
import time
from collections.abc import Sequence

import httpx
import numpy as np
import orjson
import pytest
from examples_of_tasks import model_of
from random_models import our_model

from bertkit import InferenceReport, Model
from bertkit.errors import OverLengthError
from bertkit.serving.app import Application
from bertkit.serving.engine import Engine
from bertkit.serving.guard import Guard
from bertkit.serving.jobs import Job
from bertkit.serving.metrics import Metrics
from bertkit.serving.refusals import Overloaded
from bertkit.serving.served_models import ServedModel, ServedModels
from bertkit.serving.service import Service
from bertkit.serving.settings import ServerSettings
from bertkit.serving.shared_model import SharedModel
from bertkit.serving.ticket import Answer, Answers, Ticket
from bertkit.serving.verbs import _text_logits, embedding, prediction
from bertkit.tasks import SequenceClassification

WORDS = np.array("the of and cat dog sat mat un able run walk talk blue red green one two three four".split())


@pytest.fixture(scope="module")
def model() -> Model:
    return our_model("encoder", 3, hidden_size=20, num_attention_heads=4, max_position_embeddings=29)


class Requests:
    """Requests that come while all cores are busy."""

    def __init__(self, model: Model, **settings: int) -> None:
        self.sizes: list[int] = []  # of batches
        self.engine = Engine(ServerSettings(**settings), lambda size, tokens: self.sizes.append(size))
        self.served = ServedModel("m", "float32", SharedModel(model))
        self.answers = Answers(asyncio.get_running_loop())
        self.jobs: list[Job] = []
        self.engine._num_running = self.engine.cores.num_threads

    def put(self, texts: Sequence, finish=lambda vectors, ticket: vectors, verb=None, **options) -> Job:
        answer = Answer(Ticket(len(self.jobs), deadline=time.perf_counter() + 60), self.answers)
        verb = verb or embedding(self.served, **options)

        job = Job(verb, texts, finish, answer)
        self.engine.put(job)
        self.jobs.append(job)
        return job

    async def results(self, num_computed: int) -> list:
        """The answers, or exceptions, once the cores are free and so many texts were computed."""
        self.engine._num_running = 0
        self.engine._start()
        done = await asyncio.gather(*(job.outcome.future for job in self.jobs), return_exceptions=True)
        end = time.monotonic() + 10  # batches are counted after their answers
        while sum(self.sizes) < num_computed and time.monotonic() < end:
            await asyncio.sleep(0.001)
        return [orjson.loads(one) if isinstance(one, bytes) else one for one in done]


def test_answers_have_the_bits_and_counts_of_each_request_alone(model):
    draw = np.random.default_rng(1)
    lists = [[" ".join(draw.choice(WORDS, draw.integers(1, 40))) for _ in range(size)] for size in (1, 3, 1, 2, 7, 1)]
    lists += [["\U0001f642 \U0001f680", "a \U0001f642"]]
    every_option = [{}, {"on_long": "window"}, {"dimensions": 7}]

    async def ask():
        requests = Requests(model)
        for texts in lists:
            for options in every_option:
                requests.put(texts, **options)
        return await requests.results(sum(map(len, lists))), requests

    answers, requests = asyncio.run(ask())
    assert len(requests.sizes) < len(requests.jobs) / 2
    expected = [(texts, options) for texts in lists for options in every_option]
    for answer, job, (texts, options) in zip(answers, requests.jobs, expected, strict=True):
        report = InferenceReport()
        assert (np.float32(answer) == model.embed(texts, normalize=True, report=report, **options)).all()
        ticket = job.ticket
        assert (ticket.num_tokens, ticket.num_inputs_cut, ticket.num_tokens_cut) == (
            report.num_tokens, report.num_texts_cut, report.num_tokens_cut,
        )  # fmt: skip
        assert (ticket.num_tokens_unknown, ticket.num_inputs_empty) == (report.num_unknown, report.num_empty)
        assert ticket.queue_seconds > 0 and ticket.inference_seconds > 0


def test_equal_texts_of_equal_options_are_computed_once(model):
    async def ask():
        requests = Requests(model)
        for _ in range(5):
            requests.put(["a cat", "blue", "a cat"])
        requests.put(["blue"], normalize=False)
        return await requests.results(3), requests.sizes

    answers, sizes = asyncio.run(ask())
    assert sorted(sizes) == [1, 2]
    assert answers[0] == answers[4] and answers[0][0] == answers[0][2] and answers[5][0] != answers[0][1]


@pytest.mark.parametrize("as_logits", [False, True])
def test_predictions_of_several_requests_share_batches_and_have_the_bits_of_each_alone(as_logits):
    classifier = model_of(SequenceClassification(("blame", "praise", "neither")))
    lists = [["a cat", "the mat"], [("a dog", "blue"), ("the cat", "a cat")], ["one two three " * 9], ["a cat"]]

    async def ask():
        requests = Requests(classifier)
        for items in lists:
            verb = prediction(requests.served, "truncate", as_logits=as_logits)
            requests.put(items, lambda results, ticket: list(map(str, results)), verb)
        return await requests.results(5), requests

    answers, requests = asyncio.run(ask())
    assert sorted(requests.sizes) == [2, 3], "texts and pairs do not share a batch"
    for items, answer, job in zip(lists, answers, requests.jobs, strict=True):
        report = InferenceReport()
        decode = _text_logits if as_logits else None
        parts = classifier.predict_stream(items, report=report, decode=decode, on_long="truncate")
        assert answer == [str(each) for _, part in parts for each in part]
        assert (job.ticket.num_tokens, job.ticket.num_inputs_cut) == (report.num_tokens, report.num_texts_cut)


class CountedEncoder:
    """A prepared encoder that notes the number of tokens of each batch given to it."""

    def __init__(self, prepared):
        self._prepared, self.given = prepared, []

    def __call__(self, batch, **options):
        self.given.append(len(batch.input_ids))
        return self._prepared(batch, **options)


class HeldEncoder(CountedEncoder):
    """The same, which computes nothing until its gate is open."""

    def __init__(self, prepared):
        super().__init__(prepared)
        self.gate = threading.Event()

    def __call__(self, batch, **options):
        self.given.append(len(batch.input_ids))
        self.gate.wait()
        return self._prepared(batch, **options)


@pytest.mark.parametrize("num_copies", [20, 400])
def test_a_request_of_equal_texts_gives_the_encoder_each_of_them_once(model, num_copies):
    texts = ["a dog", *["the cat sat"] * num_copies, "blue"]

    async def ask():
        requests = Requests(model)
        encoder = requests.served.model._runner.encoder
        encoder._prepared = counted = CountedEncoder(encoder._prepared)
        service = Service(ServedModels([requests.served]), requests.engine, Metrics())
        transport = httpx.ASGITransport(Guard(Application(service), service, local_only=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [asyncio.ensure_future(client.post("/embed", json={"inputs": each})) for each in (texts, ["red"])]
            while requests.engine.num_waiting < 4:
                await asyncio.sleep(0.001)
            await requests.results(0)
            return [(await each).json() for each in asked], counted.given

    answers, given = asyncio.run(ask())
    assert (np.float32([*answers[0], *answers[1]]) == model.embed([*texts, "red"], normalize=True)).all()
    assert sum(given) == sum(len(model.tokenizer.encode(text)) for text in {*texts, "red"})


def test_thousands_of_long_texts_are_computed_in_bounded_batches_and_each_once():
    model = our_model("encoder", 3, hidden_size=20, num_attention_heads=4, max_position_embeddings=512)
    distinct = [" ".join(np.random.default_rng(number).choice(WORDS, 600)) for number in range(8)]
    texts = [distinct[number % 8] for number in range(2_048)]

    async def ask():
        requests = Requests(model)
        encoder = requests.served.model._runner.encoder
        encoder._prepared = counted = CountedEncoder(encoder._prepared)
        requests.put(texts)
        requests.put(["blue"])
        return await requests.results(0), counted.given, requests.jobs[0].ticket

    (vectors, one), given, ticket = asyncio.run(ask())
    assert (np.float32(vectors[:8] + one) == model.embed([*distinct, "blue"], normalize=True)).all()
    assert vectors[8:16] == vectors[-8:] == vectors[:8]
    assert max(given) <= 1_024 and sum(given) == 8 * 512 + len(model.tokenizer.encode("blue"))
    assert (ticket.num_tokens, ticket.num_inputs_cut) == (2_048 * 512, 2_048)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ([""] * 100_000, "`inputs[0]` cannot be empty: each of the 100000 inputs"),
        (["a"] * 100_000, "batch size 100000 > maximum allowed batch size 2048"),
    ],
)
def test_a_hundred_thousand_texts_are_refused_before_any_work(model, inputs, says):
    async def ask():
        requests = Requests(model)
        service = Service(ServedModels([requests.served]), requests.engine, Metrics())
        transport = httpx.ASGITransport(Guard(Application(service), service, local_only=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post("/embed", json={"inputs": inputs})
        return answer, requests.engine.num_waiting

    answer, num_waiting = asyncio.run(ask())
    assert answer.status_code in (400, 422) and says in answer.json()["error"] and num_waiting == 0


def test_the_text_with_an_error_is_named_by_its_index_in_a_request_of_many(model):
    texts = [f"cat {number}" for number in range(300)]
    texts[217] = "cat " * 40

    async def ask():
        requests = Requests(model)
        requests.put(texts, on_long="error")
        requests.put(["cat 5", "blue"], on_long="error")
        return await requests.results(2), requests

    (refused, vectors), requests = asyncio.run(ask())
    assert isinstance(refused, OverLengthError) and "text 217 " in str(refused)
    assert (np.float32(vectors) == model.embed(["cat 5", "blue"], normalize=True)).all()
    assert requests.engine.num_waiting == 0


def test_the_first_outcome_of_an_answer_counts():
    async def ask():
        ticket = Ticket(None, deadline=time.perf_counter() + 60)
        answer = Answer(ticket, Answers(asyncio.get_running_loop()))
        answer.fail(TimeoutError("late"))
        answer.end(lambda: [1])
        with pytest.raises(TimeoutError, match="late"):
            await answer.future
        return ticket.is_canceled

    assert asyncio.run(ask())


def test_an_error_reaches_only_the_request_that_causes_it(model):
    def broken(vectors, ticket):
        raise MemoryError("too little")

    async def ask():
        requests = Requests(model)
        requests.put(["a cat"], on_long="error")
        requests.put(["blue", "cat " * 40], on_long="error")
        requests.put(["the mat"], on_long="error")
        requests.put(["the mat"], finish=broken, on_long="error")
        return await requests.results(4), requests

    (first, second, third, fourth), requests = asyncio.run(ask())
    assert isinstance(second, OverLengthError) and "1" in str(second)
    assert isinstance(fourth, MemoryError)
    assert (np.float32(first + third) == model.embed(["a cat", "the mat"], normalize=True)).all()
    assert requests.engine.num_waiting == 0 and requests.jobs[0].ticket.num_tokens == 4


def test_a_canceled_request_is_not_computed_and_leaves_the_queue(model):
    async def ask():
        requests = Requests(model, max_queue_tokens=30)
        requests.put(["a cat"])
        canceled = requests.put(["the mat " * 5, "blue"])
        with pytest.raises(Overloaded):
            requests.put(["green " * 9])
        canceled.outcome.fail(TimeoutError("late"))
        requests.engine.remove(canceled)
        requests.put(["green " * 9])
        return await requests.results(2), requests

    (first, second, third), requests = asyncio.run(ask())
    assert isinstance(second, TimeoutError) and sum(requests.sizes) == 2 and requests.engine.num_waiting == 0
    assert (np.float32(first + third) == model.embed(["a cat", "green " * 9], normalize=True)).all()


def test_the_windows_of_a_long_text_are_queued_one_by_one_and_removed_when_its_request_ends(model):
    async def ask():
        requests = Requests(model, request_timeout_seconds=0.3)
        encoder = requests.served.model._runner.encoder
        encoder._prepared = held = HeldEncoder(encoder._prepared)
        service = Service(ServedModels([requests.served]), requests.engine, Metrics())
        transport = httpx.ASGITransport(Guard(Application(service), service, local_only=False))
        requests.engine._num_running = 0
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            words = np.random.default_rng(2).choice(WORDS, 4_000)
            body = {"inputs": " ".join(words), "on_long": "window"}
            late = asyncio.ensure_future(client.post("/embed", json=body))
            while len(held.given) < requests.engine.cores.num_threads:
                await asyncio.sleep(0.001)
            num_waiting = requests.engine.num_waiting
            answer = await late
        left = requests.engine.num_waiting
        held.gate.set()
        while requests.engine.is_busy:
            await asyncio.sleep(0.001)
        return num_waiting, answer.status_code, left, len(held.given) - requests.engine.cores.num_threads

    num_waiting, *others = asyncio.run(ask())
    assert num_waiting > 100 and others == [503, 0, 0]


@pytest.mark.parametrize("text", ["cat cat", "dog"])
def test_a_request_refused_for_room_leaves_the_queue_as_it_was(model, text):
    """Also if it has the text of a request that waits."""

    async def ask():
        requests = Requests(model, max_queue_tokens=6)
        service = Service(ServedModels([requests.served]), requests.engine, Metrics())
        service.is_ready = True
        transport = httpx.ASGITransport(Guard(Application(service), service, local_only=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            first = asyncio.ensure_future(client.post("/embed", json={"inputs": ["cat cat"] * 3}))
            while requests.engine.num_waiting < 1:
                await asyncio.sleep(0.001)
            refused = await client.post("/embed", json={"inputs": [text] * 2})
            num_waiting = requests.engine.num_waiting, requests.engine.num_tokens_waiting
            await requests.results(1)
            answers = [await first, await client.post("/embed", json={"inputs": [text]})]
        return refused, num_waiting, [answer.status_code for answer in answers], requests.engine.num_waiting

    refused, num_waiting, statuses, left = asyncio.run(ask())
    assert refused.status_code == 429 and "retry-after" in refused.headers
    assert num_waiting == (1, 4) and statuses == [200, 200] and left == 0
