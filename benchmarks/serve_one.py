"""Latency of one text through the server, compared with the engine alone.

    python benchmarks/serve_one.py [--num-texts 150] [--rounds 3] [--threads 2] [--out benchmarks/results]

A client in a separate process sends one request at a time over one connection: /embed of `bertkit serve` with one text,
and /health as the empty route. The engine is called directly in a third process. They take turns, once without pauses,
and once with a pause before each call, after which threads sleep and caches are cold.
"""

import argparse
import asyncio
import socket
import time
from collections.abc import Callable

import numpy as np
import report
import texts
from models import MINILM, published_folder
from query import short_queries
from serve import SERVERS, Server
from servers import body_of
from worker import Worker

_PAUSES = {0.0: 1.0, 0.1: 0.2}
"""Seconds before each call -> share of the texts that are used."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-texts", type=int, default=150)
    results, options = report.begin("serve-one", parser)
    published = published_folder(MINILM)
    passages = texts.shuffled(texts.documentation())[: options.num_texts]
    of_kind = {"10 to 14 tokens": short_queries(published, options.num_texts), "passages": passages}
    server = Server(SERVERS["bertkit fp32"], published, options.threads, passages)
    engine = Worker("one_by_one", "load", "bertkit", published, "float32", options.threads)
    client = None
    try:
        if not asyncio.run(server.is_ready()):
            raise RuntimeError("it did not start")
        client = Worker("serve_one", "client", server.port)
        results["rows"] = [
            {"texts": kind, "pause": pause} | measured(engine, client, chosen, pause, options.rounds)
            for kind, given in of_kind.items()
            for pause, share in _PAUSES.items()
            if (chosen := given[: max(1, int(share * len(given)))])
        ]
    finally:
        server.close()
        engine.close()
        if client is not None:
            client.close()
    report.finish(results, describe(results), options.out)


def measured(engine: Worker, client: Worker, given: list[str], pause: float, rounds: int) -> dict:
    """Median milliseconds of the engine, the empty route and the server, from rounds in turns."""
    requests = [request("POST", "/embed", body_of([text])) for text in given]
    empty = [request("GET", "/health", b"")] * len(given)
    times: dict[str, list[float]] = {"engine": [], "empty": [], "server": []}
    for number in range(rounds + 1):
        turns = {
            "engine": engine.turn(given, pause).result[0],
            "empty": client.turn(empty, pause).result,
            "server": client.turn(requests, pause).result,
        }
        for name, seconds in turns.items():
            times[name] += seconds if number else []  # the first is a warm-up
    return {name: 1e3 * float(np.median(seconds)) for name, seconds in times.items()}


def request(method: str, path: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def client(port: int) -> Callable[[list[bytes], float], list[float]]:
    """A function of requests and the pause before each; it returns the response time of each in seconds."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    file = connection.makefile("rb")

    def ask(requests: list[bytes], pause: float) -> list[float]:
        seconds = []
        for sent in requests:
            time.sleep(pause)
            start = time.perf_counter()
            connection.sendall(sent)
            if not file.readline().startswith(b"HTTP/1.1 200"):
                raise RuntimeError("a request failed")
            length = 0
            while (line := file.readline().lower()) != b"\r\n":
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            file.read(length)
            seconds.append(time.perf_counter() - start)
        return seconds

    return ask


def describe(results: dict) -> str:
    rows = [
        [
            f"{row['texts']}, {1e3 * row['pause']:.0f} ms between calls",
            *(f"{row[name]:.2f}" for name in ("engine", "empty", "server")),
            f"{row['server'] / (row['engine'] + row['empty']):.2f}",
        ]
        for row in results["rows"]
    ]
    lines = [
        *report.heading("One text at a time through the server, all-MiniLM-L6-v2 in float32", results),
        report.markdown_table(["", "engine, ms", "empty route, ms", "server, ms", "ratio"], *rows),
        "",
        "Medians. ratio: the server's over engine and empty route together.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
