"""How many requests a server answers in time, by an open-loop generator: each request is sent when it is due,
regardless of whether earlier ones are answered."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

STEPS = 1.25, 1.06
"""Factors between rates: the second from the highest rate that held with the first."""

_MOST_SECONDS = 30
"""Seconds in which the last requests at a rate are waited for."""


@dataclass(frozen=True)
class Load:
    """The responses of a server to requests at one rate."""

    rate: float  # requests a second, offered
    num_requests: int
    num_answered: int  # with status 200
    answered_per_second: float
    p50_ms: float
    p99_ms: float
    latest_ms: float  # from when a request was due to when it was sent, at worst: the generator itself

    def holds(self, most_p99_ms: float) -> bool:
        """Whether all requests were answered, and 99 % of them in time."""
        return self.p99_ms <= most_p99_ms and self.num_answered == self.num_requests


class Client:
    """A client that reuses its connections to one address."""

    def __init__(self, port: int) -> None:
        self._port, self._free = port, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

    async def send(self, method: str, path: str, body: bytes) -> int:
        """Send a request, read the whole response and return its status; a closed connection is replaced."""
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof():
                break
            writer.close()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length"))
        await reader.readexactly(length)
        self._free.append((reader, writer))
        return int(lines[0].split()[1])


async def offer(
    client: Client,
    bodies: list[bytes],
    rate: float,
    seconds: float,
    statuses: Counter[int] | None = None,
    path: str = "/embed",
) -> Load:
    """Send requests at random times, at this rate on average; response times count from when a request was due.

    Args:
        statuses: filled with the number of responses of each status, 0 for a connection that failed.
    """
    counts = Counter[int]() if statuses is None else statuses
    draw, due, times = random.Random(0), time.perf_counter(), list[float]()
    tasks, end, number, latest = set[asyncio.Future[None]](), due + seconds, 0, 0.0

    async def one(scheduled: float, body: bytes) -> None:
        nonlocal latest
        latest = max(latest, time.perf_counter() - scheduled)
        try:
            counts[await client.send("POST", path, body)] += 1
        except (OSError, asyncio.IncompleteReadError):
            counts[0] += 1
        times.append(time.perf_counter() - scheduled)

    while due < end:
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.ensure_future(one(due, bodies[number % len(bodies)]))
        tasks.add(task)  # until it is done: Python's searches for cycles would take long over all of them
        task.add_done_callback(tasks.discard)
        number += 1
        due += draw.expovariate(rate)
    if tasks:
        await asyncio.wait(tasks, timeout=_MOST_SECONDS)
    for task in list(tasks):
        task.cancel()
    took = time.perf_counter() - (end - seconds)
    times.sort()
    if len(times) < number:
        times += [float(_MOST_SECONDS)] * (number - len(times))
    num_answered = counts[200]
    return Load(
        rate, number, num_answered, num_answered / took,
        1e3 * times[number // 2], 1e3 * times[int(0.99 * number)], 1e3 * latest,
    )  # fmt: skip


async def loads_at_rising_rates(
    at: Callable[[float], Awaitable[Load]], first_rate: float, most_p99_ms: float
) -> list[Load]:
    """The loads at rising rates; the last one that `Load.holds` has the highest rate.

    A rate is tried twice if the limit is exceeded the first time, because some seconds are a short time.

    Args:
        at: offers a rate.
    """
    loads: list[Load] = []

    async def holds(rate: float) -> bool:
        for _ in range(2):
            loads.append(await at(rate))
            if loads[-1].holds(most_p99_ms):
                return True
        return False

    rate, best = first_rate, 0.0
    for step in STEPS:
        while await holds(rate):
            best, is_far = rate, loads[-1].p99_ms <= most_p99_ms / 5
            rate *= step**2 if is_far else step
        rate = best * STEPS[-1]
        if not best:
            break
    return loads
