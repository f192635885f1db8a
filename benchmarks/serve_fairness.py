"""Response times of single texts while another client sends large requests.

    python benchmarks/serve_fairness.py [--seconds 30] [--threads 2] [--out benchmarks/results]

One client sends 2,048 short passages of Python's documentation in each request to `bertkit serve`, without a pause;
another sends one passage five times per second. Measured are each client alone, and both together.
"""

import argparse
import asyncio
import time
from dataclasses import asdict

import report
import texts
from models import MINILM, published_folder
from serve import SERVERS, Server
from servers import body_of

from bertkit.sizing.load import Client, Load, offer

_RATE, _MANY = 5.0, 2_048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    results, options = report.begin("serve-fairness", parser)
    passages = texts.shuffled(texts.documentation())[:_MANY]
    server = Server(SERVERS["bertkit fp32"], published_folder(MINILM), options.threads, passages)
    try:
        if not asyncio.run(server.is_ready()):
            raise RuntimeError("it did not start")
        results |= asyncio.run(measure(server.port, passages, options.seconds))
    finally:
        server.close()
    report.finish(results, describe(results), options.out)


async def measure(port: int, passages: list[str], seconds: float) -> dict:
    """Times of single texts, and texts per second of the large requests, alone and together."""
    single, many = [body_of([text]) for text in passages], body_of(passages)
    few, bulk = Client(port), Client(port)

    async def large(end: float) -> float:
        start, number = time.perf_counter(), 0
        while time.perf_counter() < end:
            status = await bulk.send("POST", "/embed", many)
            assert status == 200, status
            number += 1
        return number * len(passages) / (time.perf_counter() - start)

    async def small() -> Load:
        return await offer(few, single, _RATE, seconds)

    await offer(few, single, 20, 3)  # warm
    alone = await small()
    bulk_alone = await large(time.perf_counter() + seconds)
    together, bulk_together = await asyncio.gather(small(), large(time.perf_counter() + seconds))
    return {
        "alone": asdict(alone), "together": asdict(together), "bulk_alone": bulk_alone, "bulk_together": bulk_together
    }  # fmt: skip


def describe(results: dict) -> str:
    alone, together = results["alone"], results["together"]
    rows = [
        ["alone", f"{alone['p50_ms']:.1f}", f"{alone['p99_ms']:.1f}", f"{results['bulk_alone']:.0f}"],
        ["together", f"{together['p50_ms']:.1f}", f"{together['p99_ms']:.1f}", f"{results['bulk_together']:.0f}"],
        [
            "ratio",
            f"{together['p50_ms'] / alone['p50_ms']:.2f}",
            f"{together['p99_ms'] / alone['p99_ms']:.2f}",
            f"{results['bulk_together'] / results['bulk_alone']:.2f}",
        ],
    ]
    lines = [
        f"# Single texts while another client sends large requests, {results['date']}",
        "",
        report.machine(results),
        "",
        report.markdown_table(["", "one text: p50 ms", "p99 ms", f"{_MANY:,} a request: texts/s"], *rows),
        "",
        f"all-MiniLM-L6-v2 in float32; one text {_RATE:g} times a second, the other client without a pause.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
