"""Few threads for many requests that wait."""

import threading
import time
from concurrent.futures import Future

import pytest

from bertkit.serving.ticket import Ticket, current_ticket, set_current_ticket
from bertkit.serving.workers import Workers, wait


def test_hundreds_wait_on_two_threads_and_keep_their_own_tickets() -> None:
    workers, before = Workers(2), set(threading.enumerate())
    gates: list[Future[int]] = [Future() for _ in range(300)]

    def work(number: int) -> tuple[int, str, int]:
        set_current_ticket(Ticket(None, 0.0, request_id=str(number)))
        wait(gates[number])
        return gates[number].result(), current_ticket().request_id, threading.get_ident()

    futures = [workers.submit(work, number) for number in range(300)]
    time.sleep(0.05)
    assert set(threading.enumerate()) <= before and not any(future.done() for future in futures)
    for number in reversed(range(300)):
        gates[number].set_result(-number)
    results = [future.result(10) for future in futures]
    assert [(gate, name) for gate, name, _ in results] == [(-number, str(number)) for number in range(300)]
    assert len({thread for _, _, thread in results}) <= 2


def test_a_failure_reaches_its_caller_and_the_thread_goes_on() -> None:
    workers, gate = Workers(1), Future()

    def fail() -> None:
        wait(gate)
        raise ValueError("no")

    failing, working = workers.submit(fail), workers.submit(lambda: wait(gate))
    gate.set_exception(KeyError("which is for whoever asks for the result"))
    with pytest.raises(ValueError, match="no"):
        failing.result(10)
    assert working.result(10)


def test_on_any_other_thread_it_waits_up_to_a_time() -> None:
    future: Future[None] = Future()
    assert not wait(future, 0.01)
    future.set_result(None)
    assert wait(future, 0.01) and wait(future)
