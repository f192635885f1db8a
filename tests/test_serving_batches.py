"""Batches that requests share, without a server: the bits of every text alone, turns, cancellation, limits."""

import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import model_of
from random_models import our_model

from bertkit import InferenceReport, Model
from bertkit.inference import Runner
from bertkit.serving.engine import Engine
from bertkit.serving.jobs import Job, Verb
from bertkit.serving.queue import Part, Queue
from bertkit.serving.refusals import Canceled, Overloaded
from bertkit.serving.served_models import ServedModel, ServedModels, some_word
from bertkit.serving.server import _warm_up
from bertkit.serving.settings import ServerSettings
from bertkit.serving.shared_model import SharedModel
from bertkit.serving.shared_run import SharedEncoder
from bertkit.serving.ticket import Answer, Ticket
from bertkit.serving.verbs import embedding
from bertkit.tasks import TokenClassification, words
from bertkit.tokenizer import Vocabulary

WORDS = np.array("the of and cat dog sat mat un able run walk talk blue red green one two three four".split())


@pytest.fixture(scope="module")
def model() -> Model:
    return our_model("masked_lm", 3, hidden_size=20, num_attention_heads=4, max_position_embeddings=29)


def ticket(client: object = None, seconds: float = 60.0) -> Ticket:
    return Ticket(client, deadline=time.perf_counter() + seconds)


class Held(Answer):
    """An answer that a test waits for, without an event loop."""

    def __init__(self, ticket: Ticket) -> None:
        super().__init__(ticket, SimpleNamespace(loop=SimpleNamespace(create_future=lambda: None)))  # type: ignore[arg-type]
        self._sent = threading.Event()

    def _form(self, value: Any) -> Any:
        return value

    def send(self) -> None:
        self._sent.set()

    def value(self) -> Any:
        assert self._sent.wait(60), "no answer"
        value, error = self._outcomes[0]
        if error is not None:
            raise error
        return value


def put(engine: Engine, work: Callable[[], Any], client: object = None, seconds: float = 60.0) -> tuple[Job, Held]:
    """A function as the request of a client."""
    outcome = Held(ticket(client, seconds))
    job = Job(Verb(lambda items, report: [work()]), [""], lambda results, _: results[0], outcome)
    engine.put(job)
    return job, outcome


def test_an_answer_that_waits_to_be_sent_is_sent_when_the_batch_fails():
    answer = Held(ticket())
    answer.end(lambda: "found")
    answer.fail(RuntimeError("a panic for another request of the batch"))
    assert answer.value() == "found" and not answer.ticket.is_canceled


def together(engine: Engine, shared: SharedModel, calls: list) -> list:
    """The results of functions of the model, each as a request of a separate client, all at once."""
    waiting = [put(engine, partial(call, shared), number) for number, call in enumerate(calls)]
    return [outcome.value() for _, outcome in waiting]


def test_every_method_is_bit_identical_to_the_library(model):
    draw = np.random.default_rng(1)
    sizes = []
    engine, shared = Engine(ServerSettings(), lambda size, tokens: sizes.append(size)), SharedModel(model)
    lists = [
        [" ".join(draw.choice(WORDS, draw.integers(1, 40))) for _ in range(draw.integers(1, 9))] for _ in range(20)
    ]
    options = [
        {},
        {"on_long": "window"},
        {"layers": "sum-last-4"},
        {"pooling": "cls", "normalize": True},
        {"dimensions": 7},
    ]
    options = [chosen for chosen in options if "layers" not in chosen or model.config.num_hidden_layers >= 4]

    def embedding(texts, chosen):
        return lambda any_model: any_model.embed(texts, report=InferenceReport(), **chosen)

    def filling(text):
        return lambda any_model: any_model.fill_mask(text, top_k=3)

    def likelihood(text):
        return lambda any_model: any_model.pseudo_log_likelihood(text)

    calls = [embedding(texts, options[number % len(options)]) for number, texts in enumerate(lists)]
    calls += [filling(f"the [MASK] {word} [MASK]") for word in WORDS[:6]] + [
        likelihood("the cat sat"),
        likelihood("a mat"),
    ]
    for result, call in zip(together(engine, shared, calls), calls, strict=True):
        expected = call(model)
        assert (result == expected).all() if isinstance(result, np.ndarray) else result == expected
    assert max(sizes) > 9, "no batch was shared"


def test_predictions_of_tasks_have_the_bits_of_the_library_alone():
    tagger = model_of(TokenClassification(("B-animal", "I-animal", "O")))
    shared = SharedModel(tagger)
    texts = [" ".join(np.roll(WORDS, number)) + " " + " ".join(WORDS[:number]) for number in range(12)]
    calls = [
        lambda any_model, text=text: any_model.predict([text, "a cat"], report=InferenceReport()) for text in texts
    ]
    assert together(Engine(ServerSettings()), shared, calls) == [call(tagger) for call in calls]


class Encoded:
    """Encoded texts, as the queue sees them."""

    def __init__(self, model: Model, texts: list[str]) -> None:
        self.rows = model.tokenizer.encode_batch(texts)
        self.lengths, self.group, self.is_long = self.rows.seqlens.tolist(), id(model), False

    def key(self, index: int) -> object:
        return self.group, self.rows[index].input_ids.tobytes()


def part_of(model: Model, texts: list[str], client: object) -> Part:
    job = Job(None, [], None, Held(ticket(client)))  # type: ignore[arg-type]
    return Part(job, Encoded(model, texts), list(range(len(texts))))


def parts(taken) -> list[Part]:
    return list(dict.fromkeys(part for part, _, _ in taken.waiting))


def test_clients_are_scheduled_fairly(model):
    queue, bulk = Queue(), part_of(model, [" ".join(np.roll(WORDS, number)[:9]) for number in range(300)], "bulk")
    queue.put(bulk)
    queue.put(part_of(model, ["a cat"], "single"))
    taken = queue.take(lambda call: 256)
    assert {part.job.ticket.client for part in parts(taken)} == {"bulk", "single"}
    assert taken.num_tokens <= 256
    while queue.num_sequences:
        queue.take(lambda call: 256)
    assert queue.num_tokens == 0 and not queue.take(lambda call: 256).sequences
    clients = [
        part_of(model, [" ".join(np.roll(WORDS, number)[:9]) for number in range(3 * n, 3 * n + 3)], n)
        for n in range(3)
    ]
    for part in clients:
        queue.put(part)
    taken = [{part.job.ticket.client for part in parts(queue.take(lambda call: 20))} for _ in range(3)]
    assert set().union(*taken) == {0, 1, 2}  # also if a batch is full with the turn of one


def test_short_jobs_are_taken_alone_when_asked_for(model):
    queue = Queue()
    queue.put(part_of(model, [" ".join(np.roll(WORDS, number)[:9]) for number in range(30)], "bulk"))
    assert not queue.take(lambda call: 256, short_only=True).sequences
    queue.put(part_of(model, ["a cat"], "single"))
    assert len(queue.take(lambda call: 256, short_only=True).sequences) == 1


def test_equal_queued_texts_are_computed_once(model):
    queue = Queue()
    waiting = [part_of(model, ["a cat", "blue", "a cat"], number) for number in range(5)]
    for part in waiting:
        queue.put(part)
    taken = queue.take(lambda call: 256)
    assert len(taken.sequences) == 2 and queue.num_sequences == 0
    for part in waiting:
        assert sorted(index for one, index, _ in taken.waiting if one is part) == [0, 1, 2]


class CountedEncoder:
    """A prepared encoder that notes the sequences given to it."""

    def __init__(self, prepared):
        self._prepared, self.given, self.num_threads = prepared, [], []

    def __call__(self, batch, **options):
        self.num_threads.append(torch.get_num_threads())
        self.given += [tuple(part.tolist()) for part in batch.input_ids.split(batch.cu_seqlens.diff().tolist())]
        return self._prepared(batch, **options)


EQUAL_INPUTS = {
    "texts": lambda any_model: any_model.embed(["the cat sat"] * 150, report=InferenceReport()),
    "texts and another": lambda any_model: any_model.embed(["a dog", *["the cat"] * 150], report=InferenceReport()),
    "windows of one text": lambda any_model: any_model.embed(
        ["the " * 3_000], report=InferenceReport(), on_long="window"
    ),
    "sparse vectors": lambda any_model: any_model.embed_sparse(["the cat sat"] * 150).weights,
    "pairs": lambda any_model: any_model.next_sentence_probability(["the cat"] * 150, ["a dog"] * 150),
    "masked copies": lambda any_model: np.array(any_model.pseudo_log_likelihood(["the mat [MASK]"] * 60)),
}


@pytest.mark.parametrize("inputs", EQUAL_INPUTS)
def test_equal_inputs_of_a_request_are_computed_once_and_in_bounded_parts(inputs, monkeypatch):
    model = our_model("pretraining", 3, hidden_size=20, num_attention_heads=4, max_position_embeddings=29)
    engine, steps = Engine(ServerSettings()), []
    shared = SharedModel(model)
    encoder = shared._runner.encoder
    encoder._prepared = counted = CountedEncoder(encoder._prepared)
    call = SharedEncoder.__call__

    def noting(self, batch, **options):
        steps.append(len(batch.input_ids))
        return call(self, batch, **options)

    monkeypatch.setattr(SharedEncoder, "__call__", noting)
    monkeypatch.setattr(Runner, "tokens_per_batch", lambda self, num_tokens: 64)
    (result,) = together(engine, shared, [EQUAL_INPUTS[inputs]])
    monkeypatch.undo()
    assert (result == EQUAL_INPUTS[inputs](model)).all()
    assert len(counted.given) == len(set(counted.given)) < 10
    assert sum(steps) > 400 and max(steps) <= 64


def test_a_job_of_taken_texts_does_not_hold_up_other_models(model):
    queue, other = Queue(), our_model("encoder", 3, hidden_size=20, num_attention_heads=4)
    for number in range(2):
        queue.put(part_of(model, ["a cat"], number))
    waiting = part_of(other, ["blue"], 2)
    queue.put(waiting)
    assert len(queue.take(lambda call: 256).sequences) == 1
    assert parts(queue.take(lambda call: 256)) == [waiting]


def test_vocabularies_without_words_have_a_word_to_warm_up_with(model):
    assert some_word(model.tokenizer.vocabulary).isalpha()
    assert some_word(Vocabulary(("[UNK]", "1", "##2"))) == "##2"


def test_a_lone_text_is_computed_on_all_cores_and_several_on_one_each(model):
    engine = Engine(ServerSettings())
    served = ServedModel("m", "float32", SharedModel(model))
    encoder = served.model._runner.encoder
    encoder._prepared = counted = CountedEncoder(encoder._prepared)

    def ask(*texts: str) -> list:
        outcomes = [Held(ticket(text)) for text in texts]
        with engine._lock:  # until all of them are there
            jobs = [Job(embedding(served), [text], lambda rows, _: rows[0], one)
                    for text, one in zip(texts, outcomes, strict=True)]  # fmt: skip
            for job in jobs:
                engine._line_up(job)
        engine._start()
        return [one.value() for one in outcomes]

    (alone,) = ask("the cat sat")
    assert counted.num_threads == [engine.cores.num_threads]
    counted.num_threads.clear()
    together = ask("the cat sat", "a dog")
    assert set(counted.num_threads) == {1}
    assert (together[0] == alone).all()


def test_removed_records_leave_no_data(model):
    queue, draw = Queue(), np.random.default_rng(2)
    waiting = [part_of(model, draw.choice(WORDS, 40).tolist(), number % 3) for number in range(12)]
    for part in waiting:
        queue.put(part)
    queue.take(lambda call: 30)
    for part in waiting[::2]:
        queue.remove(part)
    seen = []
    while queue.num_sequences:
        seen += parts(queue.take(lambda call: 30))
    assert not set(seen) & set(waiting[::2]) and queue.num_tokens == 0 and not queue._twins


def test_requests_that_end_leave_the_queue(model):
    engine, shared = Engine(ServerSettings()), SharedModel(model)
    engine._num_running = engine.cores.num_threads  # nothing is taken
    jobs = [put(engine, lambda: shared.embed(["a cat", "a cat", "blue"], report=InferenceReport())) for _ in range(2)]
    for job, outcome in jobs:
        outcome.fail(Canceled("the client has gone"))
        engine.remove(job)
    assert (engine.num_waiting, engine.num_tokens_waiting) == (0, 0)
    engine._num_running = 0
    (vectors,) = together(engine, shared, [lambda any_model: any_model.embed(["a cat"], report=InferenceReport())])
    assert (vectors == model.embed(["a cat"])).all()


def test_full_queue_rejects_whole_request_with_retry_after(model):
    engine = Engine(ServerSettings(max_queue_tokens=20))
    engine._num_running = engine.cores.num_threads  # nothing is taken
    verb = embedding(ServedModel("m", "float32", SharedModel(model)))
    engine.put(Job(verb, ["one two three four one two three four one two three four"], lambda *_: None, Held(ticket())))
    with pytest.raises(Overloaded) as refused:
        engine.put(Job(verb, ["blue red green one two three four"], lambda *_: None, Held(ticket())))
    assert int(refused.value.headers["retry-after"]) >= 1 and engine.num_waiting == 1


def test_few_threads_compute_what_many_clients_wait_for_and_take_turns(model):
    """Generations of many steps, searches with several runs, and single texts."""
    shared, served = SharedModel(model), ServedModel("m", "float32", SharedModel(model))
    engine, before, done = Engine(ServerSettings()), threading.active_count(), []

    def steps(number: int, num_steps: int) -> Callable[[Any, Any], Any]:
        left = [None] * num_steps

        def step(items: Any, report: Any) -> Any:
            left.pop()
            return None if left else [done.append(number)]

        return step

    def twice() -> Any:
        first = shared.embed(["a cat", "the dog"], report=InferenceReport())
        return first + shared.embed(["blue"] * 9, report=InferenceReport())[:2]

    long = [Held(ticket(number)) for number in range(60)]
    for number, outcome in enumerate(long):
        verb = Verb(steps(number, 250), likely_tokens=lambda item: 5, is_long=True)
        engine.put(Job(verb, [""], lambda results, _: None, outcome))
    of_one_client = [Held(ticket("many")) for _ in range(60)]
    for outcome in of_one_client:
        engine.put(
            Job(Verb(steps(-1, 250), likely_tokens=lambda item: 5, is_long=True), [""], lambda *_: None, outcome)
        )
    searches = [put(engine, twice, ("search", number)) for number in range(60)]
    words = []
    for number in range(20):
        words.append((Held(ticket(("word", number))), time.perf_counter()))
        engine.put(Job(embedding(served), [WORDS[number % 9].item()], lambda rows, _: rows, words[-1][0]))
        words[-1][0].value()
        words[-1] = words[-1][0], time.perf_counter() - words[-1][1]
    assert not done, "single words waited for long requests"
    expected = model.embed(["a cat", "the dog"], report=InferenceReport())
    expected += model.embed(["blue"], report=InferenceReport())
    assert all((outcome.value() == expected).all() for _, outcome in searches)
    assert not done, "searches waited for long requests"
    assert threading.active_count() - before <= engine.cores.num_threads + 2
    for outcome in long:
        outcome.value()
    assert done.count(-1) <= 2, "one client has more turns than others"
    for outcome in of_one_client:
        outcome.value()
    assert not engine.num_waiting and not engine.num_tokens_waiting


def test_failed_request_does_not_affect_others(model):
    engine, shared = Engine(ServerSettings()), SharedModel(model)
    encodings = model.tokenizer.encode_batch(["a cat"], with_offsets=False)

    def fail(batch, indices):
        raise MemoryError("too little")

    _, failed = put(engine, lambda: shared._runner.run(encodings, fail))
    _, other = put(engine, lambda: shared.embed(["a cat"], report=InferenceReport()))
    with pytest.raises(MemoryError):
        failed.value()
    assert (other.value() == model.embed(["a cat"])).all()


def test_rules_of_words_are_there_before_the_first_request(monkeypatch):
    """Making them takes a third of a second, in which Python's lock is held."""
    served = ServedModel("tagger", "float32", model_of(TokenClassification(("B-animal", "I-animal", "O"))))
    engine = Engine(ServerSettings())
    served.model = SharedModel(served.model)
    for name in ("exempt_from_collection", "unmap_pages_of_unused_files"):
        monkeypatch.setattr(f"bertkit.serving.server.{name}", lambda: None)
    words._patterns.cache_clear()
    _warm_up(ServedModels([served]), engine)
    num_made = words._patterns.cache_info().misses
    served.model.predict(["the cat sat"])
    assert words._patterns.cache_info().misses == num_made > 0
