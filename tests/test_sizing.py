"""The measurement of how many requests a second a server takes."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from examples_of_tasks import model_of

from bertkit.cli import run
from bertkit.sizing.load import Client, Load, loads_at_rising_rates, offer
from bertkit.tasks import SequenceClassification


def server_with(capacity: float, refuses: bool = False) -> Callable[[float], Any]:
    """Loads of a server whose queue grows without limit at a rate; at more it refuses some or is late."""

    async def at(rate: float) -> Load:
        is_over = rate >= capacity
        p99 = 10_000.0 if is_over and not refuses else 10 / (1 - min(rate / capacity, 0.99))
        return Load(rate, 100, 90 if is_over and refuses else 100, rate, 5.0, p99, 0.1)

    return at


@pytest.mark.parametrize("capacity", [9.0, 120.0, 3_800.0])
@pytest.mark.parametrize("refuses", [False, True])
def test_highest_rate_is_within_a_step_of_the_capacity(capacity: float, refuses: bool) -> None:
    loads = asyncio.run(loads_at_rising_rates(server_with(capacity, refuses), 4.0, 200.0))
    best = [load for load in loads if load.holds(200.0)][-1]
    limit = 0.95 * capacity  # where 10 / (1 - rate / capacity) is 200
    assert limit / 1.06 <= best.rate < capacity and len(loads) < 30
    assert best.rate == max(load.rate for load in loads if load.holds(200.0))


def test_no_rate_holds() -> None:
    loads = asyncio.run(loads_at_rising_rates(server_with(3.0), 4.0, 200.0))
    assert [load.rate for load in loads] == [4.0, 4.0] and not any(load.holds(200.0) for load in loads)


def test_a_late_answer_of_a_server_counts_from_when_its_request_was_due() -> None:
    """A server that answers requests one at a time, each when a test lets it."""

    async def measured() -> Load:
        turn = asyncio.Lock()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while not reader.at_eof():
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
                async with turn:
                    await asyncio.sleep(0.05)
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        load = await offer(Client(port), [b"{}"], 100.0, 0.4)
        server.close()
        return load

    load = asyncio.run(measured())
    assert load.num_answered == load.num_requests > 15
    assert load.p99_ms > 50 * load.num_requests / 2 and not load.holds(250.0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seconds", "0"], "--seconds 0.0: expected a number above 0"),
        (["--within-ms", "nan"], "--within-ms nan: expected a number above 0"),
        (["--words", "0"], "--words 0: expected a number above 0"),
        (["--input", "no-such-file.txt"], "no-such-file.txt"),
    ],
)
def test_wrong_options(arguments: list[str], says: str, capsys: Any) -> None:
    assert run(["sizing", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.full
@pytest.mark.parametrize("within_ms", [1_000.0, 0.001])
def test_command_measures_a_model(within_ms: float, tmp_path: Path, capsys: Any) -> None:
    model_of(SequenceClassification(("a", "b"))).save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("the cat sat\none two three\n")
    options = ["--input", str(tmp_path / "texts.txt"), "--words", "2", "--seconds", "0.1"]
    assert run(["sizing", "--model", str(tmp_path / "model"), *options, "--within-ms", str(within_ms)]) == 0
    captured = capsys.readouterr()
    row = json.loads(captured.out)
    assert row["route"] == "/predict" and row["memory_mb"] > 50 and row["unloaded_ms"] > 0
    if within_ms < 1:
        assert row["requests_per_second"] == row["tokens_per_second"] == 0 and "raise --within-ms" in captured.err
    else:
        assert row["requests_per_second"] >= 4 and row["tokens_per_second"] > row["requests_per_second"]


@pytest.mark.full
def test_server_that_does_not_start(capsys: Any) -> None:
    assert run(["sizing", "--model", "no/such/folder"]) == 2
    error = capsys.readouterr().err
    assert "the server does not start" in error and "no/such/folder" in error and error.count("\n") == 1
