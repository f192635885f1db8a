"""Behavior of a server under overload: statuses, response times and memory.

    python benchmarks/serve_overload.py [--rate 600] [--seconds 30] [--threads 2] [--out benchmarks/results]

Short passages of Python's documentation, one in each request, are sent to `bertkit serve` in an open loop, while
/health is requested five times per second. A low load is measured before and after the overload.
"""

import argparse
import asyncio
import http.client
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict

import report
import texts
from models import MINILM, published_folder
from serve import SERVERS, Server
from servers import body_of

from bertkit.sizing.load import Client, offer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=600.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    results, options = report.begin("serve-overload", parser)
    published = published_folder(MINILM)
    passages = texts.shuffled(texts.documentation())[:2_000]
    server = Server(SERVERS["bertkit fp32"], published, options.threads, passages)
    try:
        if not asyncio.run(server.is_ready()):
            raise RuntimeError("it did not start")
        results |= asyncio.run(overload(server, [body_of([text]) for text in passages], options.rate, options.seconds))
    finally:
        server.close()
    report.finish(results, describe(results), options.out)


async def overload(server: Server, bodies: list[bytes], rate: float, seconds: float) -> dict:
    """Statuses, times and memory before, during and after."""
    client, statuses, loop = Client(server.port), Counter(), asyncio.get_running_loop()
    before = await offer(client, bodies, 10, 5)
    memory = [server.resident_bytes]

    async def note_memory() -> None:
        while True:
            memory.append(server.resident_bytes)
            await asyncio.sleep(0.2)

    noting = asyncio.ensure_future(note_memory())
    with ProcessPoolExecutor(1) as others:  # not the process of the load, which is late itself
        probing = loop.run_in_executor(others, health_times, server.port, seconds)
        during = await offer(client, bodies, rate, seconds, statuses=statuses)
        health = sorted(await probing)
    noting.cancel()
    half = memory[len(memory) // 2]
    await asyncio.sleep(10)
    after = await offer(client, bodies, 10, 5)
    return {
        "before": asdict(before),
        "during": asdict(during),
        "after": asdict(after),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "health_p50_ms": health[len(health) // 2],
        "health_p99_ms": health[99 * len(health) // 100],
        "health_worst_ms": health[-1],
        "resident_bytes": [memory[0], half, max(memory), server.resident_bytes],
    }


def health_times(port: int, seconds: float) -> list[float]:
    """Response times of /health in milliseconds, requested five times per second."""
    times, end = [], time.monotonic() + seconds
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while time.monotonic() < end:
        start = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        times.append(1e3 * (time.perf_counter() - start))
        time.sleep(0.2)
    return times


def describe(results: dict) -> str:
    during, (first, half, most, last) = results["during"], [size / 2**20 for size in results["resident_bytes"]]
    statuses = ", ".join(f"{count} with status {status}" for status, count in results["statuses"].items())
    rows = [
        [name, *(f"{results[name][key]:.1f}" for key in ("rate", "answered_per_second", "p50_ms", "p99_ms"))]
        for name in ("before", "during", "after")
    ]
    lines = [
        f"# Overload of a server of all-MiniLM-L6-v2, {results['date']}",
        "",
        report.machine(results),
        "",
        report.markdown_table(["", "offered/s", "answered/s", "p50 ms", "p99 ms"], *rows),
        "",
        f"During the overload {during['num_requests']} requests: {statuses}. /health: median "
        f"{results['health_p50_ms']:.1f} ms, 99th percentile {results['health_p99_ms']:.1f} ms, worst "
        f"{results['health_worst_ms']:.1f} ms. Resident memory "
        f"{first:.0f} MiB before, {half:.0f} at half time, at most {most:.0f}, {last:.0f} fifteen seconds later. "
        "Times include refusals; after: ten seconds later.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
