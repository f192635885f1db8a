"""Batches that requests share, without a server: the bits of every text alone, turns, cancellation, limits."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from bertkit.serving.encoded_jobs import Job
from bertkit.serving.shared_batches import SharedBatches, Turns, some_word
from examples_of_tasks import model_of
from random_models import our_model

from bertkit import InferenceReport, Model
from bertkit.executor import Executor
from bertkit.inference import Runner
from bertkit.inference.runner import inferred
from bertkit.serving import encoded_jobs
from bertkit.serving.queue import Queue
from bertkit.serving.refusals import Canceled, Overloaded, TimedOut
from bertkit.serving.settings import ServerSettings
from bertkit.serving.shared_model import SharedModel
from bertkit.serving.ticket import Ticket, set_current_ticket
from bertkit.tasks import TokenClassification
from bertkit.tokenizer import Vocabulary

WORDS = np.array("the of and cat dog sat mat un able run walk talk blue red green one two three four".split())


@pytest.fixture(scope="module")
def model() -> Model:
    return our_model("masked_lm", 3, hidden_size=20, num_attention_heads=4, max_position_embeddings=29)


def ticket(client: object = None, seconds: float = 60.0) -> Ticket:
    return Ticket(client, deadline=time.perf_counter() + seconds)


def on_threads(shared: SharedModel, calls: list) -> list:
    """The results of functions of the model, each as a request of a separate client, all at once."""

    def work(number: int):
        set_current_ticket(ticket(number))
        return calls[number](shared)

    pool = Executor(len(calls))
    return [future.result() for future in [pool.submit(work, number) for number in range(len(calls))]]


def test_every_method_is_bit_identical_to_the_library(model):
    draw = np.random.default_rng(1)
    sizes = []
    shared = SharedModel(model, SharedBatches(ServerSettings(), lambda size, tokens: sizes.append(size)))
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
    for result, call in zip(on_threads(shared, calls), calls, strict=True):
        expected = call(model)
        assert (result == expected).all() if isinstance(result, np.ndarray) else result == expected
    assert max(sizes) > 9, "no batch was shared"


def test_predictions_of_tasks_have_the_bits_of_the_library_alone():
    tagger = model_of(TokenClassification(("B-animal", "I-animal", "O")))
    shared = SharedModel(tagger, SharedBatches(ServerSettings()))
    texts = [" ".join(np.roll(WORDS, number)) + " " + " ".join(WORDS[:number]) for number in range(12)]
    calls = [
        lambda any_model, text=text: any_model.predict([text, "a cat"], report=InferenceReport()) for text in texts
    ]
    assert on_threads(shared, calls) == [call(tagger) for call in calls]


def job_of(model: Model, texts: list[str], client: object) -> Job:
    encodings = model.tokenizer.encode_batch(texts, with_offsets=False)
    return Job(model._runner, encodings, lambda batch, indices: None, ticket(client))


def test_clients_are_scheduled_fairly(model):
    queue, bulk = Queue(), job_of(model, [" ".join(np.roll(WORDS, number)[:9]) for number in range(300)], "bulk")
    queue.put(bulk)
    queue.put(job_of(model, ["a cat"], "single"))
    taken = queue.take(lambda job: 256)
    assert {job.ticket.client for job in taken.waiting} == {"bulk", "single"}
    assert taken.num_tokens <= 256
    while len(queue):
        queue.take(lambda job: 256)
    assert queue.num_tokens == 0 and not queue.take(lambda job: 256).sequences


def test_short_jobs_are_taken_alone_when_asked_for(model):
    queue = Queue()
    queue.put(job_of(model, [" ".join(np.roll(WORDS, number)[:9]) for number in range(30)], "bulk"))
    assert not queue.take(lambda job: 256, short_only=True).sequences
    queue.put(job_of(model, ["a cat"], "single"))
    assert len(queue.take(lambda job: 256, short_only=True).sequences) == 1


def test_equal_queued_texts_are_computed_once(model):
    queue = Queue()
    jobs = [job_of(model, ["a cat", "blue", "a cat"], number) for number in range(5)]
    for job in jobs:
        queue.put(job)
    taken = queue.take(lambda job: 256)
    assert len(taken.sequences) == 2 and len(queue) == 0
    assert all(sorted(index for index, _ in taken.waiting[job]) == [0, 1, 2] for job in jobs)


class CountedEncoder:
    """A prepared encoder that notes the sequences given to it."""

    def __init__(self, prepared):
        self._prepared, self.given = prepared, []

    def __call__(self, batch, **options):
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
    batches, parts = SharedBatches(ServerSettings()), []
    shared = SharedModel(model, batches)
    encoder = shared._runner.encoder
    encoder._prepared = counted = CountedEncoder(encoder._prepared)
    call = encoded_jobs.SharedEncoder.__call__

    def noting(self, batch, **options):
        parts.append(len(batch.input_ids))
        return call(self, batch, **options)

    monkeypatch.setattr(encoded_jobs.SharedEncoder, "__call__", noting)
    monkeypatch.setattr(Runner, "tokens_per_batch", lambda self, num_tokens: 64)
    result = EQUAL_INPUTS[inputs](shared)
    monkeypatch.undo()
    assert (result == EQUAL_INPUTS[inputs](model)).all()
    assert len(counted.given) == len(set(counted.given)) < 10
    assert sum(parts) > 400 and max(parts) <= 64


def test_texts_of_a_canceled_request_are_not_computed_nor_taken_for_others(model):
    """Here the live request has as many texts, all equal, as the batch has sequences."""
    shared = SharedModel(model, SharedBatches(ServerSettings()))
    encoder = shared._runner.encoder
    encoder._prepared = counted = CountedEncoder(encoder._prepared)
    queue = Queue()
    jobs = [
        Job(
            shared._runner,
            model.tokenizer.encode_batch(texts, with_offsets=False),
            lambda batch, indices: encoder(batch).last_hidden_state[batch.first_tokens],
            ticket(number),
        )
        for number, texts in enumerate([["the cat sat"] * 3, ["a dog", "blue"]])
    ]
    for job in jobs:
        queue.put(job)
    batch = queue.take(lambda job: 256)
    assert len(batch.sequences) == len(batch.waiting[jobs[0]]) == 3
    jobs[1].fail(Canceled("the client has gone"))
    inferred(lambda: jobs[0].compute(batch))
    assert jobs[0].is_done and jobs[0].error is None and len(counted.given) == 1


def test_batch_of_many_equal_texts_is_not_a_lone_short_text(model, monkeypatch):
    batches, seen = SharedBatches(ServerSettings()), []
    computed = encoded_jobs._compute

    def noting(batch):
        seen.append((torch.get_num_threads(), batches._num_running, batches._num_long))
        computed(batch)

    monkeypatch.setattr(encoded_jobs, "_compute", noting)
    SharedModel(model, batches).embed(["the cat sat"] * 150, report=InferenceReport())
    assert seen == [(1, 1, 1)]


def test_a_job_of_taken_texts_does_not_hold_up_other_models(model):
    queue, other = Queue(), our_model("encoder", 3, hidden_size=20, num_attention_heads=4)
    for number in range(2):
        queue.put(job_of(model, ["a cat"], number))
    waiting = job_of(other, ["blue"], 2)
    queue.put(waiting)
    assert len(queue.take(lambda job: 256).sequences) == 1
    assert list(queue.take(lambda job: 256).waiting) == [waiting]


def test_vocabularies_without_words_have_a_word_to_warm_up_with(model):
    assert some_word(model.tokenizer.vocabulary).isalpha()
    assert some_word(Vocabulary(("[UNK]", "1", "##2"))) == "##2"


def test_a_lone_text_is_computed_on_all_cores_and_several_on_one_each(model, monkeypatch):
    batches, used = SharedBatches(ServerSettings()), []
    computed = encoded_jobs._compute
    monkeypatch.setattr(encoded_jobs, "_compute", lambda batch: used.append(torch.get_num_threads()) or computed(batch))
    shared = SharedModel(model, batches)
    alone = shared.embed(["the cat sat"])
    assert used == [batches.cores.num_threads]
    used.clear()
    together = shared.embed(["the cat sat", "a dog"])
    assert set(used) == {1}
    assert (together[0] == alone[0]).all()


def test_removed_records_leave_no_data(model):
    queue, draw = Queue(), np.random.default_rng(2)
    jobs = [job_of(model, draw.choice(WORDS, 40).tolist(), number % 3) for number in range(12)]
    for job in jobs:
        queue.put(job)
    queue.take(lambda job: 30)
    for job in jobs[::2]:
        queue.remove(job)
    seen = []
    while len(queue):
        seen += list(queue.take(lambda job: 30).waiting)
    assert not set(seen) & set(jobs[::2]) and queue.num_tokens == 0 and not queue._twins


def test_canceled_and_late_requests_leave_the_queue(model):
    batches = SharedBatches(ServerSettings())
    shared = SharedModel(model, batches)
    release = threading.Event()
    blockers = [batches.cores.submit(release.wait) for _ in range(batches.cores.num_threads)]
    batches._num_running = batches.cores.num_threads
    own, late = ticket("own"), ticket("late", 0.2)

    def ask(one: Ticket):
        set_current_ticket(one)
        return shared.embed(["a cat", "a cat", "blue"], report=InferenceReport())

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(ask, own), pool.submit(ask, late)
        with pytest.raises(TimedOut, match="deadline"):
            second.result(20)
        own.cancel()
        with pytest.raises(Canceled):
            first.result(20)
    assert batches.num_waiting == 0
    batches._num_running = 0
    release.set()
    assert all(blocker.result() for blocker in blockers)
    assert (shared.embed(["a cat"], report=InferenceReport()) == model.embed(["a cat"])).all()


def test_full_queue_rejects_whole_request_with_retry_after(model):
    batches = SharedBatches(ServerSettings(max_queue_tokens=20))
    batches._num_running = batches.cores.num_threads  # nothing is taken
    shared = SharedModel(model, batches)

    def ask(text: str):
        set_current_ticket(ticket(text, 1.0))
        return shared.embed([text], report=InferenceReport())

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, "one two three four one two three four one two three four")
        while not batches.num_waiting:
            time.sleep(0.01)
        with pytest.raises(Overloaded) as refused:
            pool.submit(ask, "blue red green one two three four").result(20)
        assert int(refused.value.headers["retry-after"]) >= 1 and batches.num_waiting == 1
        with pytest.raises(TimedOut):
            first.result(20)


def test_turns_are_taken_by_few_threads_in_the_order_in_which_they_come():
    turns, order, inside, most = Turns(2), [], [], []

    def take(number: int) -> None:
        for _ in range(3):
            with turns:
                inside.append(number)
                most.append(len(inside))
                order.append(number)
                inside.remove(number)

    turns.__enter__(), turns.__enter__()
    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=take, args=(number,)))
        threads[-1].start()
        while turns.num_wanted < 3 + number:
            pass
    turns.__exit__()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4] * 3 and set(most) == {1} and turns.num_wanted == 1


def test_failed_request_does_not_affect_others(model):
    batches = SharedBatches(ServerSettings())
    encodings = model.tokenizer.encode_batch(["a cat"], with_offsets=False)
    shared = SharedModel(model, batches)

    def fail(batch, indices):
        raise MemoryError("too little")

    with pytest.raises(MemoryError):
        batches.run(Job(shared._runner, encodings, fail, ticket("failing")))
    assert (shared.embed(["a cat"], report=InferenceReport()) == model.embed(["a cat"])).all()
