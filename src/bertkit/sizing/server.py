"""How many requests a second a server on this machine takes: measured over HTTP at rising rates."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bertkit.errors import UsageError
from bertkit.sizing.load import Client, Load, loads_at_rising_rates, offer

FIRST_RATE = 4.0
_WARM_SECONDS = 3.0
_POLL_SECONDS = 0.1
_ROUTES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "feature-extraction": ("/embed", lambda text: {"inputs": [text]}),
    "fill-mask": ("/embed", lambda text: {"inputs": [text]}),
    "text-classification": ("/predict", lambda text: {"inputs": [[text]]}),
    "token-classification": ("/entities", lambda text: {"inputs": text}),
    "question-answering": ("/answer", lambda text: {"question": text[:40] or "who?", "context": text}),
    "text-ranking": ("/rerank", lambda text: {"query": text[:40], "texts": [text]}),
}
"""The route of a kind of model, and the body of a request with one text."""


@dataclass(frozen=True)
class Sizing:
    """Result of a measurement; times in milliseconds."""

    route: str
    requests_per_second: float  # the highest rate at which 99 % were answered in time; 0 if none was
    tokens_per_second: float  # at that rate
    median_ms: float
    p99_ms: float
    unloaded_ms: float  # median at the first rate
    memory_mb: float  # of the server afterwards


def measure_server(
    arguments: Sequence[str],
    texts: Sequence[str],
    *,
    within_ms: float,
    seconds: float,
    on_load: Callable[[Load], object] = lambda load: None,
) -> Sizing:
    """Start a server and measure the highest rate of requests, each with one text, that it answers in time.

    The generator of requests shares the machine with the server.

    Args:
        arguments: of `bertkit serve`, without an address.
        within_ms: milliseconds in which 99 % have to be answered.
        seconds: for each rate.
        on_load: called after each rate.

    Raises:
        UsageError: the server does not start, its model only generates, or it refuses the texts.
    """
    with _started(arguments) as url:
        kind = _get(url, "/info")["models"][0]["kinds"][0]
        if kind not in _ROUTES:
            raise UsageError(f"a model for {kind} cannot be measured: its time depends on the length of its answers")
        route, body = _ROUTES[kind]
        bodies = [json.dumps(body(text)).encode() for text in texts]
        client = Client(int(url.rpartition(":")[2]))

        async def measured() -> list[Load]:
            if (status := await client.send("POST", route, bodies[0])) != 200:
                raise UsageError(f"{route} answers the first text with status {status}: choose other texts")

            async def at(rate: float) -> Load:
                load = await offer(client, bodies, rate, seconds, path=route)
                on_load(load)
                return load

            await offer(client, bodies, FIRST_RATE, _WARM_SECONDS, path=route)  # warm
            return await loads_at_rising_rates(at, FIRST_RATE, within_ms)

        loads = asyncio.run(measured())
        values = dict(re.findall(r"^(\w+) (\S+)$", _get(url, "/metrics"), re.MULTILINE))
    held = [load for load in loads if load.holds(within_ms)]
    best, rate = (held[-1], held[-1].rate) if held else (loads[-1], 0.0)
    tokens = float(values["te_request_input_length_sum"]) / float(values["te_request_input_length_count"])
    memory = float(values.get("process_resident_memory_bytes", "nan")) / 1e6
    return Sizing(route, rate, rate * tokens, best.p50_ms, best.p99_ms, loads[0].p50_ms, memory)


@contextmanager
def _started(arguments: Sequence[str]) -> Iterator[str]:
    """The URL of a server that is ready, which is stopped afterwards."""
    command = [sys.executable, "-m", "bertkit", "serve", *arguments, "--host", "127.0.0.1", "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            while True:
                log.seek(0)
                lines = log.read()
                if ready := re.search(r" ready at (http\S+)\n", lines):
                    break
                if process.poll() is not None:
                    raise UsageError(f"the server does not start: {lines.strip().rpartition(chr(10))[2]}")
                time.sleep(_POLL_SECONDS)
            yield ready[1]
        finally:
            process.terminate()
            process.wait()


def _get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path) as answer:
        body = answer.read().decode()
    return json.loads(body) if path == "/info" else body
